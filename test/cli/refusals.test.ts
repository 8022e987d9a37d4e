/** What `berth` refuses by itself, before it asks any service. */

import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fail, makeHome } from './berth.ts';

let home: Awaited<ReturnType<typeof makeHome>>;
before(async () => {
  home = await makeHome();
});
after(() => home.remove());

test('a URL that cannot be used is a usage error, logged in or not', async () => {
  for (const url of ['ftp://127.0.0.1', 'nonsense', 'http://user:secret@127.0.0.1']) {
    for (const command of [['instance', 'list'], ['specs'], ['login', '--token-stdin']])
      await fail(home.env, [...command, '--url', url], 2, /^berth: The URL of the service must/);
    const env = { ...home.env, BERTH_TOKEN: 'berth_none' };
    await fail(env, ['instance', 'list', '--url', url], 2, /^berth: The URL of the service must/);
  }
});

test('a key file that is not there is a usage error that says what may be given', async () => {
  const env = { ...home.env, BERTH_TOKEN: 'berth_none', BERTH_URL: 'http://127.0.0.1:65534' };
  const missing = join(home.home, 'missing.pub');
  await fail(env, ['key', 'add', '0', '--public-key', missing], 2, /no such file.*\.pub/);
  await fail(env, ['key', 'add', '0', '--public-key', 'laptop'], 2, /no such file.*book list/);
  await fail(env, ['instance', 'create', '--public-key', missing], 2, /no such file.*\.pub/);
  await fail(env, ['key', 'book', 'add', 'laptop', missing], 2, /no such file.*\.pub/);
  await fail(env, ['key', 'where', missing], 2, /no such file.*SHA256/);
});

test('revoke does not go ahead where nobody can be asked, unless told to', async () => {
  const env = { ...home.env, BERTH_TOKEN: 'berth_none', BERTH_URL: 'http://127.0.0.1:65534' };
  const args = ['key', 'revoke', `SHA256:${'a'.repeat(43)}`, '--everywhere'];
  await fail(env, args, 2, /add --yes/);
  await fail(env, [...args, '--yes'], 5);
});
