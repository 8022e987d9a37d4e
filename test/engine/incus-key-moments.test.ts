/** What happens in a guest at the worst moment of an add: somebody edits the file, or what was put in place is not sure to stay. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { EngineError } from '../../src/engines/engine.ts';
import { skipIncus } from '../support/incus.ts';
import { numberedKey, rejectsWith } from './engine-contract.ts';
import { KeyGuest } from './incus-key-guest.ts';

const KEY = { publicKey: numberedKey(1) };
const ADDED = { outcome: 'added', line: KEY.publicKey };
const OWN = '/usr/local/sbin/sync';

describe('moments of an add in an Incus guest', { skip: skipIncus }, () => {
  let guest: KeyGuest;
  before(async () => {
    guest = await KeyGuest.open('moments');
  });
  beforeEach(() => guest.clear());
  afterEach(() => guest.do(`sudo rm -rf ${OWN} ~/once`));
  after(() => guest?.incus.remove());

  const add = () => guest.keys.add(guest.place, KEY);

  /** The guest's own `sync`: a disk that is slow, that fails, on which something else happens meanwhile. */
  const syncs = (script: string) =>
    guest.do(
      `printf '%s\\n' '#!/bin/sh' '${script}' 'exec /usr/bin/sync "$@"' | sudo tee ${OWN} >/dev/null; sudo chmod 755 ${OWN}`,
    );

  it('keeps what is added by hand while the new file is flushed', async () => {
    await guest.put('# first\n');
    await syncs(
      'case $1 in *.new*) mkdir ~/once 2>/dev/null && echo "# by hand" >>~/.ssh/authorized_keys ;; esac',
    );
    assert.deepEqual(await add(), ADDED);
    assert.equal(await guest.text(), `# first\n# by hand\n${KEY.publicKey}\n`);
  });

  it('keeps a file that is made by hand while the new one is flushed', async () => {
    await guest.do('rm -f $K');
    await syncs(
      'case $1 in *.new*) mkdir ~/once 2>/dev/null && echo "# by hand" >~/.ssh/authorized_keys ;; esac',
    );
    assert.deepEqual(await add(), ADDED);
    assert.equal(await guest.text(), `# by hand\n${KEY.publicKey}\n`);
  });

  const ends: readonly (readonly [what: string, script: string])[] = [
    ['fails', 'exit 1'],
    ['is killed with the program', 'kill -9 $PPID'],
    ['takes too long', 'sleep 30'],
  ];
  for (const [what, script] of ends)
    it(`says of a line that is in place that it is, when the flush of its folder ${what}`, async () => {
      await syncs(`[ "$1" != . ] || { ${script}; }`);
      const error = await add().then(
        () => assert.fail('refused'),
        (thrown: unknown) => thrown,
      );
      assert.ok(error instanceof EngineError, String(error));
      assert.equal(await guest.text(), `${KEY.publicKey}\n`);
      assert.deepEqual(await error.outcome, ADDED);
    });

  it('says of a line that was there before that it is not ours', async () => {
    await guest.put(`# ${KEY.publicKey}\n`);
    await syncs('exit 1');
    const error = await add().then(
      () => assert.fail('refused'),
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof EngineError, String(error));
    assert.equal(await error.outcome, undefined);
  });

  it('refuses when the name of the login user is somebody else, or nobody', async () => {
    for (const [from, to] of [
      ['^ubuntu:x:1000:', 'ubuntu:x:1001:'],
      ['^ubuntu:x:1001:', 'ubuntu:x:0:'],
      ['^ubuntu:x:0:', 'other:x:1000:'],
    ] as const) {
      await guest.do(`sed -i "s/${from}/${to}/" /etc/passwd`, 0);
      const { message } = await rejectsWith('guest_conflict', add);
      assert.match(message, /user ubuntu .*1000/, to);
    }
    await guest.do('sed -i "s/^other:x:1000:/ubuntu:x:1000:/" /etc/passwd', 0);
    assert.equal(await guest.text(), '');
    assert.equal((await add()).outcome, 'added');
  });

  it('refuses when sshd would look in another home', async () => {
    await guest.do('sudo sed -i "/^ubuntu:/s,:/home/ubuntu:,:/home/other:," /etc/passwd');
    try {
      assert.match((await rejectsWith('guest_conflict', add)).message, /home/);
    } finally {
      await guest.do('sudo sed -i "/^ubuntu:/s,:/home/other:,:/home/ubuntu:," /etc/passwd');
    }
  });
});
