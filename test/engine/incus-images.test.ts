import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { AppError } from '../../src/domain/errors.ts';
import { EngineError } from '../../src/engines/engine.ts';
import { IncusClient } from '../../src/engines/incus/client.ts';
import type { ImageFiles } from '../../src/engines/incus/image-build.ts';
import { ownArchitecture } from '../../src/engines/incus/image-recipe.ts';
import { upload } from '../../src/engines/incus/image-upload.ts';
import { Images } from '../../src/engines/incus/images.ts';
import { isIncusError } from '../../src/engines/incus/incus-error.ts';
import { skipIncus } from '../support/incus.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';

const run = promisify(execFile);

/** All that is looked for in an image; nothing of it would work. */
const goodTree: Readonly<Record<string, string>> = {
  'etc/passwd': 'root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n',
  'home/ubuntu/.ssh/authorized_keys': '',
  'usr/sbin/sshd': '',
  'usr/bin/sudo': '',
  'usr/bin/flock': '',
  'usr/bin/timeout': '',
};

describe('images of the Incus engine', { skip: skipIncus }, () => {
  const endpoints = [process.env.BERTH_TEST_INCUS_URL ?? ''];
  const pool = process.env.BERTH_TEST_INCUS_POOL ?? '';
  const project = `bt-images-${process.pid}`;
  const everything = new IncusClient({ endpoints, tls: undefined, project: 'default' });
  const client = new IncusClient({ endpoints, tls: undefined, project });
  const images = new Images(client, pool);
  const progress = () => {};
  const folder = makeTemporaryFolder('berth-image-');

  before(async () => {
    const config = { 'features.images': 'true', 'features.profiles': 'true' };
    await everything.change('POST', '/1.0/projects', { name: project, config });
  });

  after(async () => {
    for (const fingerprint of await fingerprints())
      await client.change('DELETE', `/1.0/images/${fingerprint}`);
    await everything.change('DELETE', `/1.0/projects/${project}`);
    client.close();
    everything.close();
  });

  async function fingerprints(): Promise<string[]> {
    const all = await client.get<{ fingerprint: string }[]>('/1.0/images', {
      query: { recursion: '1' },
    });
    return all.map(({ fingerprint }) => fingerprint);
  }

  /** An image in two files, or in one. */
  async function makeImage(
    name: string,
    tree: Readonly<Record<string, string>>,
    form: 'split' | 'unified' = 'split',
  ): Promise<ImageFiles> {
    const place = join(folder, name);
    const files = { ...tree, 'etc/name': name };
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(place, 'rootfs', path)), { recursive: true });
      await writeFile(join(place, 'rootfs', path), text);
    }
    const architecture = ownArchitecture() === 'amd64' ? 'x86_64' : 'aarch64';
    const properties = { description: name };
    const metadata = JSON.stringify({ architecture, creation_date: 1, properties });
    await writeFile(join(place, 'metadata.yaml'), metadata);
    const contents = form === 'split' ? ['metadata.yaml'] : ['metadata.yaml', 'rootfs'];
    const tar = join(place, 'image.tar');
    await run('tar', ['-cf', tar, '-C', place, ...contents]);
    if (form === 'unified') return { metadata: tar, rootfs: undefined };
    const rootfs = join(place, 'rootfs.squashfs');
    await run('mksquashfs', [join(place, 'rootfs'), rootfs, '-quiet', '-no-progress']);
    return { metadata: tar, rootfs };
  }

  const importAs = async (template: string, files: ImageFiles) =>
    (await images.import(template, { kind: 'files', files }, { progress })).fingerprint;

  test('an image becomes a template; the same again changes nothing and sends nothing', async () => {
    const files = await makeImage('once', goodTree);
    const fingerprint = await importAs('once', files);
    const before = await images.list();
    const lines: string[] = [];
    const options = { progress: (line: string) => lines.push(line) };
    const again = await images.import('once', { kind: 'files', files }, options);
    assert.equal(again.fingerprint, fingerprint);
    assert.deepEqual(lines, []);
    assert.deepEqual(await images.list(), before);
    const { template, type, description } = again;
    assert.deepEqual([template, type, description], ['once', 'container', 'once']);
  });

  test('an image in one file is taken as well', async () => {
    const fingerprint = await importAs('unified', await makeImage('unified', goodTree, 'unified'));
    assert.ok((await fingerprints()).includes(fingerprint));
  });

  test('two imports of the same at once both succeed', async () => {
    const files = await makeImage('twice', goodTree);
    const both = ['twice-a', 'twice-b'].map((template) =>
      images.import(template, { kind: 'files', files }, { progress, unchecked: true }),
    );
    const [one, other] = await Promise.all(both);
    assert.equal(one?.fingerprint, other?.fingerprint);
  });

  test('a newer image takes the place of the old one, which goes', async () => {
    const old = await importAs('moving', await makeImage('old', goodTree));
    const next = await importAs('moving', await makeImage('new', goodTree));
    assert.notEqual(next, old);
    const found = (await images.list()).filter(({ template }) => template === 'moving');
    assert.deepEqual(
      found.map(({ fingerprint }) => fingerprint),
      [next],
    );
    assert.ok(!(await fingerprints()).includes(old));
  });

  test('an image stays while another template names it', async () => {
    const files = await makeImage('shared', goodTree);
    const fingerprint = await importAs('shared-a', files);
    await importAs('shared-b', files);
    await images.remove('shared-a');
    assert.ok((await fingerprints()).includes(fingerprint));
    await images.remove('shared-b');
    assert.ok(!(await fingerprints()).includes(fingerprint));
  });

  test('an image that somebody else put there stays when its template goes', async () => {
    const files = await makeImage('foreign', goodTree);
    await upload(client, files);
    const [target = ''] = (
      await client.get<{ fingerprint: string; properties: { description?: string } }[]>(
        '/1.0/images',
        { query: { recursion: '1' } },
      )
    ).flatMap((one) => (one.properties.description === 'foreign' ? [one.fingerprint] : []));
    await client.change('POST', '/1.0/images/aliases', { name: 'berth-foreign', target });
    await images.remove('foreign');
    assert.ok((await fingerprints()).includes(target));
  });

  test('an image that nobody could log in to is refused, and nothing of it stays', async () => {
    const working = await importAs('refused', await makeImage('working', goodTree));
    const bad = await makeImage('bad', { 'etc/passwd': 'ubuntu:x:1001:1001::/:/bin/sh\n' });
    const before = await fingerprints();
    await assert.rejects(importAs('refused', bad), (error) => {
      assert.ok(error instanceof EngineError);
      for (const word of ['1000', '.ssh', 'openssh-server', 'sudo', 'flock', '--unchecked'])
        assert.ok(error.message.includes(word), `${error.message} without ${word}`);
      return true;
    });
    assert.deepEqual((await fingerprints()).sort(), before.sort());
    const found = (await images.list()).find(({ template }) => template === 'refused');
    assert.equal(found?.fingerprint, working);
    assert.deepEqual(await client.get('/1.0/instances'), []);
    const options = { progress, unchecked: true };
    const taken = await images.import('refused', { kind: 'files', files: bad }, options);
    assert.notEqual(taken.fingerprint, working);
    // Taken unseen once is not taken unseen for ever.
    await assert.rejects(importAs('refused-too', bad), EngineError);
  });

  test('what is no image is refused with the words of Incus', async () => {
    const file = join(folder, 'text.tar');
    await writeFile(file, 'no image at all');
    await assert.rejects(
      importAs('text', { metadata: file, rootfs: undefined }),
      (error) => error instanceof EngineError && error.message.includes('Incus said: '),
    );
  });

  test('names that are none, templates that are not there', async () => {
    const files = await makeImage('named', goodTree);
    for (const name of ['', 'Big', '../x', '-x', 'x'.repeat(41)])
      await assert.rejects(
        importAs(name, files),
        (error) => error instanceof AppError && error.kind === 'invalid_request',
      );
    await assert.rejects(
      images.remove('nothing'),
      (error) => error instanceof AppError && error.kind === 'not_found',
    );
  });

  test('no Incus: it says so', async () => {
    const away = { endpoints: ['unix:/nonexistent/unix.socket'], tls: undefined };
    const lost = new Images(new IncusClient({ ...away, project: 'default' }), pool);
    await assert.rejects(
      lost.list(),
      (error) => error instanceof EngineError && error.kind === 'unavailable',
    );
  });

  test('the alias of a template that was removed is gone', async () => {
    await importAs('gone', await makeImage('gone', goodTree));
    await images.remove('gone');
    await assert.rejects(client.get('/1.0/images/aliases/berth-gone'), (error) =>
      isIncusError(error, 'not_found'),
    );
  });
});
