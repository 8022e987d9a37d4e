/** `berth admin audit`: it lists the log, and finds what was done to it by hand. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, test } from 'node:test';
import { type Environment, fail, makeHome, succeed } from './berth.ts';

let home: Awaited<ReturnType<typeof makeHome>>;
let env: Environment;
let data: string;
before(async () => {
  home = await makeHome();
  data = join(home.home, 'data');
  env = { ...home.env, BERTH_DATA: data };
  for (const name of ['acme', 'zenith']) {
    await succeed(env, ['admin', 'org', 'create', name, '--email', `ops@${name}.example`]);
    for (const limit of ['1', '2', '3']) {
      await succeed(env, ['admin', 'org', 'quota', name, '--instances', limit]);
    }
  }
});
after(() => home.remove());

function change(statement: string): void {
  const database = new DatabaseSync(join(data, 'berth.db'));
  database.exec(statement);
  database.close();
}

const verify = ['admin', 'audit', 'verify'];

test('the lines of one organization are listed, newest first', async () => {
  const { stdout } = await succeed(env, ['admin', 'audit', 'list', '--org', 'acme', '--json']);
  const lines = JSON.parse(stdout) as { id: number; action: string; subject: string }[];
  assert.deepEqual(
    lines.map(({ id, action, subject }) => `${id} ${action} ${subject}`),
    [
      '4 org.quota instances=3',
      '3 org.quota instances=2',
      '2 org.quota instances=1',
      '1 org.create acme',
    ],
  );
  const table = await succeed(env, ['admin', 'audit', 'list', '--org', 'acme', '--limit', '1']);
  assert.match(table.stdout, /ID +AT.*\n4 .* org\.quota .*instances=3 .*\n$/);
  await fail(env, ['admin', 'audit', 'list', '--org', 'nobody'], 4, /not found/);
});

test('a log that was changed is found, named, and exit code 1', async () => {
  const sound = await succeed(env, verify);
  assert.match(sound.stdout, /^acme: 4 lines are sound; head [0-9a-f]{64}\nzenith: 4 lines/);
  change(`update audit_log set subject = 'instances=9' where subject = 'instances=2'
    and org_id = (select id from organizations where name = 'acme')`);
  const broken = await fail(env, verify, 1, /1 of 2 audit logs/);
  assert.match(broken.stdout, /^acme: Line 3 .*2 lines before it are sound\.\nzenith: 4 lines/);
  await fail(env, [...verify, '--org', 'acme'], 1);
  await succeed(env, [...verify, '--org', 'zenith']);
  await fail(env, [...verify, '--org', 'nobody'], 4);
  const { stdout } = await fail(env, [...verify, '--json'], 1);
  const verdicts = JSON.parse(stdout) as { organization: string; sound: boolean; lines: number }[];
  assert.deepEqual(
    verdicts.map(({ organization, sound: isSound, lines }) => [organization, isSound, lines]),
    [
      ['acme', false, 2],
      ['zenith', true, 4],
    ],
  );
});

test('a log whose newest line was taken away is found', async () => {
  change(`delete from audit_log where id = (select max(id) from audit_log
    where org_id = (select id from organizations where name = 'zenith'))`);
  const { stdout } = await fail(env, [...verify, '--org', 'zenith'], 1);
  assert.match(stdout, /Line 4 is missing: 4 were written, 3 are there/);
});
