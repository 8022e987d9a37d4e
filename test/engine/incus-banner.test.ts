/** Waiting for sshd, at servers that are near, slow, far, or none. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { after, afterEach, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitForBanner } from '../../src/engines/incus/banner.ts';
import { skipIncus } from '../support/incus.ts';

const banner = 'SSH-2.0-OpenSSH_9.9\r\n';
const timeoutMs = 8_000;

const wait = (server: Server, check = async () => {}) => {
  const { port } = server.address() as { port: number };
  return waitForBanner({ ip: '127.0.0.1', port }, { timeoutMs, check, checkEveryMs: 50 });
};

describe('the wait for sshd', { skip: skipIncus, concurrency: 1 }, () => {
  const open = new Set<Socket>();
  let server: Server;
  let taken = 0;

  const serve = async (answer: (socket: Socket) => unknown): Promise<void> => {
    server = createServer((socket) => {
      taken += 1;
      open.add(socket.on('close', () => open.delete(socket)).on('error', () => undefined));
      void answer(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  };

  afterEach(() => {
    taken = 0;
    server.close();
    for (const socket of open) socket.destroy();
  });
  after(() => void nft(`delete table inet ${table}`));

  it('takes the first banner, from one connection', async () => {
    await serve((socket) => socket.write(banner));
    assert.equal(await wait(server), true);
    assert.ok(taken < 3, `it was asked ${taken} times`);
  });

  it('leaves a busy server the time to say it, and does not ask it over and over', async () => {
    await serve(async (socket) => {
      await sleep(3_000);
      socket.write(banner);
    });
    assert.equal(await wait(server), true);
    // One; more when this machine itself stood still for a moment. It would be about twenty.
    assert.ok(taken < 6, `it was asked ${taken} times`);
  });

  it('does not miss what is said while something is checked', async () => {
    await serve(async (socket) => {
      await sleep(500);
      socket.write(banner);
    });
    const check = () => sleep(1_000);
    assert.equal(await wait(server, check), true);
    assert.ok(taken < 3, `it was asked ${taken} times`);
  });

  it('goes on when a server hangs up, or says something else', async () => {
    await serve((socket) => {
      if (taken < 3) socket.end();
      else socket.end(taken < 5 ? 'HTTP/1.1 400 Bad Request\r\n' : banner);
    });
    assert.equal(await wait(server), true);
    assert.ok(taken >= 5, `it was asked ${taken} times`);
  });

  it('reaches a server whose answer takes longer than the time between two attempts', async () => {
    await serve((socket) => socket.write(banner));
    const { port } = server.address() as { port: number };
    // Of each connection the first packet is lost, and Linux repeats it after a second.
    const lost = nft(`
      table inet ${table} {
        set seen { type inet_service; flags timeout; timeout 1m; }
        chain input {
          type filter hook input priority 0;
          tcp dport ${port} tcp flags & (syn | ack) == syn tcp sport != @seen add @seen { tcp sport } drop
        }
      }`);
    assert.equal(lost, '');
    assert.equal(await wait(server), true);
  });

  it('ends as soon as there is nothing to wait for', async () => {
    await serve(() => undefined);
    const ended = new Error('It ended.');
    const startedAt = performance.now();
    await assert.rejects(
      wait(server, () => Promise.reject(ended)),
      ended,
    );
    assert.ok(performance.now() - startedAt < timeoutMs);
    await sleep(100);
    assert.equal(open.size, 0, 'and leaves no connection behind');
  });

  it('gives up in time where nobody listens', async () => {
    await serve(() => undefined);
    const { port } = server.address() as { port: number };
    server.close();
    const check = async () => {};
    const brief = { timeoutMs: 300, check, checkEveryMs: 50 };
    assert.equal(await waitForBanner({ ip: '127.0.0.1', port }, brief), false);
  });
});

const table = `berth_test_${process.pid}`;

/** What it complains of. Rules from a file: nft 1.0.9 reads no others. */
function nft(rules: string): string {
  return spawnSync('nft', ['-f', '/dev/stdin'], { input: rules, encoding: 'utf8' }).stderr;
}
