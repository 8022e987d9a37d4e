/** A guest that puts anything in the place of `~/.ssh` changes nothing outside itself and blocks nobody. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Canary } from '../support/canary.ts';
import type { CallOptions } from '../support/client.ts';
import { type House, type Machine, openHouse } from '../support/house.ts';
import { checkErrorBody } from '../support/http.ts';
import { makeKeyPair, saveKey } from '../support/keys.ts';
import { loginProblem, OpenSession } from '../support/ssh.ts';
import { eventuallyPasses, sleep } from '../support/waiting.ts';

const ANSWER_LIMIT_MS = 5000;
const house: House = await openHouse();
const { api, skipLogins: skip, keyFolder } = house;
const canary = new Canary();
const victim = await house.machine();
const hostile = await house.machine();
let session: OpenSession | undefined;

/** Another instance, to which a key is added all the time. */
class Bystander {
  readonly times: number[] = [];
  readonly failures: string[] = [];
  private going = true;
  private readonly ended: Promise<void>;

  constructor(machine: Machine) {
    this.ended = this.work(machine);
  }

  private async work(machine: Machine): Promise<void> {
    const body = { public_key: machine.publicKey };
    while (this.going) {
      const start = performance.now();
      const answer = await api.call('POST', `/v1/instances/${machine.id}/add_key`, { body });
      this.times.push(performance.now() - start);
      if (answer.status !== 200) this.failures.push(answer.text);
      await sleep(50);
    }
  }

  async stop(): Promise<void> {
    this.going = false;
    await this.ended;
  }
}

let bystander: Bystander | undefined;

before(async () => {
  if (skip !== false) return;
  session = await OpenSession.open(hostile.login, join(keyFolder, 'session'));
  bystander = new Bystander(victim);
});

after(async () => {
  await bystander?.stop();
  await session?.close();
  await house.dispose();
  canary.remove();
});

function guest(command: string): Promise<string> {
  if (session === undefined) throw new Error('There is no session.');
  return session.do(command);
}

const KEYS = '~/.ssh/authorized_keys';
const outside = (target: string): string => `rm -rf ${KEYS}; ln -s ${target} ${KEYS}`;
const instead = (make: string): string => `rm -rf ~/.ssh; ${make}`;

const tricks: readonly (readonly [string, string])[] = [
  ['authorized_keys is a link to a file of the host', outside(canary.file)],
  ['authorized_keys is a link to a pipe of the host', outside(canary.pipe)],
  ['authorized_keys is a link to a folder of the host', outside(canary.folder)],
  ['authorized_keys is a relative link upwards', outside(`../../../../../../../..${canary.file}`)],
  ['authorized_keys is a link to a file of its own', `mv ${KEYS} ~/real; ln -s ~/real ${KEYS}`],
  ['authorized_keys is a link to nothing', outside(join(canary.folder, 'new'))],
  ['authorized_keys is a link to itself', outside('authorized_keys')],
  ['authorized_keys is a link to /proc/self/mem', outside('/proc/self/mem')],
  ['authorized_keys is a link to /dev/zero', outside('/dev/zero')],
  ['authorized_keys is a FIFO', `rm ${KEYS}; mkfifo ${KEYS}`],
  [
    'authorized_keys is a FIFO somebody writes to',
    `rm ${KEYS}; mkfifo ${KEYS}; (yes > ${KEYS} &) > /dev/null 2>&1 < /dev/null`,
  ],
  ['authorized_keys is a folder', `rm ${KEYS}; mkdir ${KEYS}`],
  ['authorized_keys is a folder with something in it', `rm ${KEYS}; mkdir -p ${KEYS}/a/b`],
  [
    'authorized_keys is a socket',
    `rm ${KEYS}; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local=>"$ENV{HOME}/.ssh/authorized_keys",Listen=>1) or die'`,
  ],
  ['authorized_keys is a hard link', `ln ${KEYS} ~/second-name`],
  ['authorized_keys is a sparse file of 1 GB', `truncate -s 1G ${KEYS}`],
  ['authorized_keys is 32 MB of one line', `head -c 32000000 /dev/zero | tr '\\0' x > ${KEYS}`],
  ['authorized_keys is read-only', `chmod 400 ${KEYS}`],
  ['authorized_keys may not be read', `chmod 000 ${KEYS}`],
  ['authorized_keys is open to all', `chmod 666 ${KEYS}`],
  ['.ssh is a link to a folder of the host', instead(`ln -s ${canary.sshFolder} ~/.ssh`)],
  [
    '.ssh is a relative link upwards',
    instead(`ln -s ../../../../../../..${canary.sshFolder} ~/.ssh`),
  ],
  ['.ssh is a link to a folder of its own', 'mv ~/.ssh ~/elsewhere; ln -s elsewhere ~/.ssh'],
  ['.ssh is a link to itself', instead('ln -s .ssh ~/.ssh')],
  ['.ssh is a file', instead('echo x > ~/.ssh')],
  ['.ssh is a FIFO', instead('mkfifo ~/.ssh')],
  ['.ssh may not be entered', 'chmod 000 ~/.ssh'],
  ['.ssh is read-only', 'chmod 500 ~/.ssh'],
  ['.ssh is open to all', 'chmod 777 ~/.ssh'],
  ['.ssh has 20,000 other files', 'cd ~/.ssh; seq 20000 | xargs touch'],
  ['the home is open to all', 'chmod 777 ~'],
  ['the home is read-only', 'chmod 500 ~'],
  ['the home may not be entered', 'chmod 000 ~'],
];

const MEND =
  'pkill -x yes; chmod 755 /home/ubuntu; chmod -R u+rwX /home/ubuntu/.ssh 2>&-; cd /home/ubuntu; ' +
  'rm -rf .ssh real elsewhere second-name; mkdir -m 700 .ssh; ' +
  `printf "%s\\n" "${hostile.publicKey}" > .ssh/authorized_keys; chmod 600 .ssh/authorized_keys`;

const addKeyPath = `/v1/instances/${hostile.id}/add_key`;

interface Timed {
  readonly status: number;
  readonly text: string;
}

/** A call that has to end soon, in success or in a clear refusal. */
async function soon(method: string, path: string, options: CallOptions = {}): Promise<Timed> {
  const start = performance.now();
  const answer = await api.call(method, path, options);
  const took = performance.now() - start;
  assert.ok(took < ANSWER_LIMIT_MS, `${method} ${path} took ${Math.round(took)} ms`);
  assert.ok([200, 204, 404, 409, 502].includes(answer.status), answer.text);
  if (answer.status >= 400) {
    assert.ok(checkErrorBody(answer.status, answer.text).message.length > 20);
  }
  return answer;
}

async function assertLoginWhenAdded(answer: Timed, keyFile: string): Promise<void> {
  if (answer.status !== 200) return;
  const problem = await loginProblem({ ...hostile.login, keyFile });
  assert.equal(problem, undefined, '200 means that the key logs in');
}

async function tryEverything(): Promise<string> {
  const pair = await makeKeyPair(keyFolder);
  const supplied = await soon('POST', addKeyPath, { body: { public_key: pair.publicKey } });
  await assertLoginWhenAdded(supplied, pair.keyFile);
  const generated = await soon('POST', addKeyPath);
  if (generated.status === 200) {
    const { key } = JSON.parse(generated.text) as { key: string };
    await assertLoginWhenAdded(generated, saveKey(keyFolder, key));
  }
  await soon('GET', `/v1/instances/${hostile.id}/keys`);
  await soon('DELETE', `/v1/instances/${hostile.id}/keys/SHA256:${'A'.repeat(43)}`);
  canary.assertUntouched();
  const refusals = [supplied, generated].filter(({ status }) => status !== 200);
  return [supplied.status, generated.status, ...refusals.map(({ text }) => text)].join(' ');
}

for (const [name, command] of tricks) {
  test(`${name}: a key lands and logs in, or a clear refusal`, { skip }, async (context) => {
    try {
      await guest(command);
      context.diagnostic(await tryEverything());
    } finally {
      await guest(MEND);
    }
    const pair = await makeKeyPair(keyFolder);
    await api.addKey(hostile.id, { public_key: pair.publicKey });
    assert.equal(await loginProblem({ ...hostile.login, keyFile: pair.keyFile }), undefined);
  });
}

/** Programs that change things back and forth while the service works; each is ended by its marker file. */
const swaps: readonly (readonly [string, string])[] = [
  [
    'authorized_keys and a link outwards',
    `symlink "${canary.file}","k.link"; rename "authorized_keys","k.real"; rename "k.link","authorized_keys"; rename "k.real","authorized_keys";`,
  ],
  [
    '.ssh and a link outwards',
    `chdir $ENV{HOME}; rename ".ssh","ssh.real"; symlink "${canary.sshFolder}",".ssh"; unlink ".ssh"; rename "ssh.real",".ssh";`,
  ],
  [
    'every new file and a link outwards',
    `for (glob("* .[a-z]*")) { next if $_ eq "authorized_keys"; unlink; symlink "${canary.file}",$_; }`,
  ],
];

for (const [name, work] of swaps) {
  test(`a guest that swaps ${name} all the time`, { skip }, async (context) => {
    const loop = `chdir "$ENV{HOME}/.ssh"; while (!-e "/tmp/enough") { ${work} }`;
    await guest(`rm -f /tmp/enough; nohup perl -e '${loop}' > /dev/null 2>&1 < /dev/null &`);
    const statuses = new Map<number, number>();
    try {
      for (let count = 0; count < 60; count += 1) {
        const { status } = await soon('POST', addKeyPath);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    } finally {
      await guest(`touch /tmp/enough; while pgrep -x perl; do sleep 0.1; done; ${MEND}`);
    }
    context.diagnostic(JSON.stringify([...statuses]));
    canary.assertUntouched();
    assert.match(await tryEverything(), /200 200/);
  });
}

test('a snapshot, a stop and a start get over whatever lies in ~/.ssh', { skip }, async () => {
  await guest(`${outside(canary.file)}; mkfifo ~/.ssh/pipe; ln -s ${canary.folder} ~/outside`);
  await api.createSnapshot(hostile.id, 'of-a-hostile-disk');
  await api.snapshotReady('of-a-hostile-disk');
  await session?.close();
  await api.stopInstance(hostile.id);
  await api.reach(hostile.id, 'STOPPED', ['RUNNING', 'STOPPING']);
  await api.startInstance(hostile.id);
  await api.reach(hostile.id, 'RUNNING', ['STOPPED', 'STARTING']);
  canary.assertUntouched();
});

test('a guest that kills everything it may is running again soon', { skip }, async () => {
  const doomed = await house.machine();
  const open = await OpenSession.open(doomed.login, join(keyFolder, 'doomed'));
  await open.do('kill -9 -1; kill -9 1').catch(() => undefined);
  await open.close();
  await eventuallyPasses(20_000, async () => {
    assert.equal(await loginProblem(doomed.login), undefined);
  });
  assert.equal((await api.instance(doomed.id)).status, 'RUNNING');
});

test('a hostile instance is deleted like any other; nothing outside changed', {
  skip,
}, async () => {
  await api.deleteInstance(hostile.id);
  await api.gone(hostile.uuid);
  canary.assertUntouched();
});

test('all the while keys were added to the other instance without delay', {
  skip,
}, async (context) => {
  await bystander?.stop();
  const { times = [], failures = [] } = bystander ?? {};
  assert.deepEqual(failures, []);
  const worst = Math.max(...times);
  context.diagnostic(`${times.length} keys added, the slowest in ${Math.round(worst)} ms`);
  assert.ok(times.length > 20 && worst < 2000, `${times.length} times, the worst ${worst} ms`);
  assert.equal(await loginProblem(victim.login), undefined);
});
