/** Sends image files to Incus, whatever their size. */

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import type { IncusClient } from './client.ts';
import type { ImageFiles } from './image-build.ts';
import { isIncusError } from './incus-error.ts';

/** Large images over a slow line; the end of the operation, which unpacks nothing, comes soon after. */
const uploadMs = 60 * 60_000;

const filesOf = ({ metadata, rootfs }: ImageFiles): string[] =>
  rootfs === undefined ? [metadata] : [metadata, rootfs];

/** What Incus names the image: the SHA-256 of its files, one after the other. */
export async function fingerprintOf(files: ImageFiles): Promise<string> {
  const hash = createHash('sha256');
  for (const file of filesOf(files))
    for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}

export async function upload(client: IncusClient, files: ImageFiles): Promise<void> {
  const { metadata, rootfs } = files;
  const boundary = 'berth-image-part';
  const type =
    rootfs === undefined ? 'application/octet-stream' : `multipart/form-data; boundary=${boundary}`;
  const body = () =>
    rootfs === undefined
      ? createReadStream(metadata)
      : Readable.from(parts(boundary, metadata, rootfs), { objectMode: false });
  const options = { timeoutMs: uploadMs, headers: { 'content-type': type } };
  await client.change('POST', '/1.0/images', body, options).catch((error: unknown) => {
    // Somebody else has sent the same at the same time.
    if (!isIncusError(error, 'busy')) throw error;
  });
}

/** Metadata first: Incus insists on it. A disk of a virtual machine goes under a name of its own. */
async function* parts(boundary: string, metadata: string, rootfs: string): AsyncGenerator<Buffer> {
  const isDisk = /\.(?:img|qcow2)$/.test(rootfs);
  const named = [
    ['metadata', metadata],
    [isDisk ? 'rootfs.img' : 'rootfs', rootfs],
  ] as const;
  for (const [name, file] of named) {
    // Quotes and line feeds would end the name early.
    const shown = basename(file).replace(/[^\w.-]/g, '_');
    yield Buffer.from(
      `--${boundary}\r\nContent-Disposition: form-data; name="${name}"; filename="${shown}"\r\n` +
        'Content-Type: application/octet-stream\r\n\r\n',
    );
    yield* createReadStream(file);
    yield Buffer.from('\r\n');
  }
  yield Buffer.from(`--${boundary}--\r\n`);
}
