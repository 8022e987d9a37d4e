/** Whether an incusd that was started by hand still runs is asked from its first moment on. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { isIncusd } from '../../scripts/incus-daemon.ts';

/** Becomes one program after the other, as a daemon with something put before it does. */
const start = (): ChildProcess =>
  spawn('env', ['env', 'env', 'env', 'sh', '-c', 'sleep 60', 'incusd'], { stdio: 'ignore' });

test('it runs while it becomes one program after the other, and not when it has ended', async () => {
  for (let times = 0; times < 40; times += 1) {
    const child = start();
    const pid = child.pid ?? 0;
    const lookUntil = performance.now() + 25;
    let looks = 0;
    let missed = 0;
    for (; performance.now() < lookUntil; looks += 1) if (!isIncusd(pid)) missed += 1;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    // Not collected yet: node only does that between two tasks.
    const killedAt = performance.now();
    while (isIncusd(pid) && performance.now() - killedAt < 5_000);
    assert.equal(isIncusd(pid), false);
    await ended;
    assert.equal(isIncusd(pid), false);
    assert.equal(missed, 0, `it was missed in ${missed} of ${looks} looks`);
  }
});

test('what is no incusd is none', () => {
  assert.equal(isIncusd(process.pid), false);
});
