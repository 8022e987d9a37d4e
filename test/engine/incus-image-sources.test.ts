import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { EngineError } from '../../src/engines/engine.ts';
import { buildImage } from '../../src/engines/incus/image-build.ts';
import { ownArchitecture, recipeHash } from '../../src/engines/incus/image-recipe.ts';
import { ownSources, ownSuite } from '../../src/engines/incus/image-sources.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

async function etcWith(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = makeTemporaryFolder('berth-image-');
  await mkdir(join(folder, 'apt/sources.list.d'), { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return folder;
}

test('the suite is the one of this host where it is Debian or Ubuntu', async () => {
  const debian = await etcWith({ 'os-release': 'ID=debian\nVERSION_CODENAME=bookworm\n' });
  assert.equal(ownSuite(debian), 'bookworm');
  const ubuntu = await etcWith({ 'os-release': 'VERSION_CODENAME="noble"\nID=ubuntu\n' });
  assert.equal(ownSuite(ubuntu), 'noble');
  const other = await etcWith({ 'os-release': 'ID=fedora\nVERSION_CODENAME=forty\n' });
  assert.equal(ownSuite(other), 'stable');
  assert.equal(ownSuite(join(other, 'nothing')), 'stable');
});

test('packages come from where the host has its own, and from nowhere else', async () => {
  const folder = await etcWith({
    'apt/sources.list': [
      '# deb http://commented.example bookworm main',
      'deb http://one.example/debian bookworm main contrib',
      'deb-src http://one.example/debian bookworm main',
      'deb [arch=amd64 signed-by=/usr/share/keyrings/one.gpg] http://one.example/security bookworm-security main',
      'deb http://one.example/debian bookworm-backports main',
      'deb cdrom:[Debian]/ bookworm main',
      '',
    ].join('\n'),
    'apt/sources.list.d/third.list': 'deb https://third.example nodistro main\n',
    'apt/sources.list.d/two.sources': [
      'Types: deb deb-src',
      'URIs: http://two.example/debian',
      'Suites: bookworm bookworm-updates',
      'Components: main',
      'Signed-By: /usr/share/keyrings/two.gpg',
      '',
      'Enabled: no',
      'Types: deb',
      'URIs: http://off.example/debian',
      'Suites: bookworm',
      'Components: main',
      '',
    ].join('\n'),
    'apt/sources.list.d/two.sources.off': 'Types: deb\nURIs: http://off.example\n',
  });
  assert.deepEqual(ownSources('bookworm', folder), [
    'deb http://one.example/debian bookworm main',
    'deb [signed-by=/usr/share/keyrings/one.gpg] http://one.example/security bookworm-security main',
    'deb [signed-by=/usr/share/keyrings/two.gpg] http://two.example/debian bookworm main',
    'deb [signed-by=/usr/share/keyrings/two.gpg] http://two.example/debian bookworm-updates main',
  ]);
});

test('a host that has only updates of the suite has nothing to build it from', async () => {
  const list = 'deb http://one.example/debian trixie-security main\n';
  const folder = await etcWith({ 'apt/sources.list': list });
  assert.deepEqual(ownSources('trixie', folder), []);
});

const mirror = 'http://127.0.0.1:1/debian';

test('an image that was built is found at once', async () => {
  const cacheFolder = makeTemporaryFolder('berth-image-');
  const distribution = { suite: 'bookworm', architecture: ownArchitecture() };
  const folder = join(cacheFolder, recipeHash(distribution, [mirror]));
  await mkdir(folder);
  const lines: string[] = [];
  const progress = (line: string) => lines.push(line);
  assert.deepEqual(await buildImage({ cacheFolder, suite: 'bookworm', mirror, progress }), {
    metadata: join(folder, 'metadata.tar.gz'),
    rootfs: join(folder, 'rootfs.squashfs'),
    cached: true,
  });
  assert.deepEqual(lines, []);
});

const isRoot = process.getuid?.() === 0;

test('a build that fails says why, leaves nothing, and clears up after those that were killed', {
  skip: !isRoot,
}, async () => {
  const cacheFolder = makeTemporaryFolder('berth-image-');
  // No process has this number: it is above what the kernel gives out.
  await mkdir(join(cacheFolder, '.building-4194305-one'));
  await mkdir(join(cacheFolder, `.building-${process.pid}-two`));
  const scratch = join(tmpdir(), 'berth-building-4194305-one');
  await mkdir(scratch, { recursive: true });
  const progress = () => {};
  await assert.rejects(
    buildImage({ cacheFolder, suite: 'bookworm', mirror, progress }),
    (error) =>
      error instanceof EngineError && /mmdebstrap said:[\s\S]*127\.0\.0\.1/.test(error.message),
  );
  assert.deepEqual(await readdir(cacheFolder), [`.building-${process.pid}-two`]);
  assert.equal(existsSync(scratch), false);
  const own = `berth-building-${process.pid}-`;
  const left = (await readdir(tmpdir())).filter((name) => name.startsWith(own));
  assert.deepEqual(left, []);
});

/** Of the processes that run in this folder. */
async function mountsOfThoseIn(folder: string): Promise<Set<string>> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const read = async (pid: string) =>
    (await readlink(`/proc/${pid}/cwd`)) === folder ? readlink(`/proc/${pid}/ns/mnt`) : '';
  const found = await Promise.all(pids.map((pid) => read(pid).catch(() => '')));
  return new Set(found.filter((mounts) => mounts !== ''));
}

test('of a build that is killed no mount is left on the host', { skip: !isRoot }, async () => {
  const cacheFolder = makeTemporaryFolder('berth-image-');
  const looked = Promise.withResolvers<void>();
  const empty = createServer(async (_request, response) => {
    await looked.promise;
    response.writeHead(404).end();
  });
  empty.listen(0, '127.0.0.1');
  await once(empty, 'listening');
  const { port } = empty.address() as AddressInfo;
  const options = { cacheFolder, suite: 'bookworm', mirror: `http://127.0.0.1:${port}/debian` };
  const built = assert.rejects(buildImage({ ...options, progress: () => {} }), EngineError);
  await once(empty, 'request');
  const [folder = ''] = await readdir(cacheFolder);
  const mounts = await mountsOfThoseIn(join(cacheFolder, folder));
  looked.resolve();
  await built;
  empty.close();
  assert.equal(mounts.size, 1);
  assert.equal(mounts.has(await readlink('/proc/self/ns/mnt')), false);
});
