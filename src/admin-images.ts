import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Environment, loadConfig } from './config.ts';
import { makeDataFolder } from './data-folder.ts';
import { AppError } from './domain/errors.ts';
import { IncusClient } from './engines/incus/client.ts';
import { buildImage } from './engines/incus/image-build.ts';
import { Images, type ImportOptions, type TemplateImage } from './engines/incus/images.ts';

export type { TemplateImage };
export type ImageAdmin = ReturnType<typeof openImages>;

interface BuildFlags {
  readonly suite?: string;
  readonly mirror?: string;
  readonly fresh?: boolean;
}

interface Remote {
  /** Such as `images:debian/12`, or the address of a server, `#` and a name there. */
  readonly name: string;
  readonly type: 'container' | 'virtual-machine';
}

const imageServers: Readonly<Record<string, string>> = {
  images: 'https://images.linuxcontainers.org',
};

/** What `berth admin image` uses: the Incus of the settings, whether the service runs or not. */
export function openImages(env: Environment) {
  const { incus, dataDir } = loadConfig(env);
  const client = new IncusClient(incus);
  const images = new Images(client, incus.pool);
  return {
    list: () => images.list(),
    remove: (template: string) => images.remove(template),
    async build(template: string, flags: BuildFlags, progress: (line: string) => void) {
      // A build takes a minute: who has no Incus to give it to is told before.
      await images.list();
      makeDataFolder(dataDir);
      const cacheFolder = join(dataDir, 'images');
      const files = await buildImage({ ...flags, cacheFolder, progress });
      return images.import(template, { kind: 'files', files }, { progress });
    },
    async importFiles(template: string, files: readonly string[], options: ImportOptions) {
      for (const file of files) await requireFile(file);
      const [metadata = '', rootfs] = inOrder(files);
      return images.import(template, { kind: 'files', files: { metadata, rootfs } }, options);
    },
    importRemote: (template: string, { name, type }: Remote, options: ImportOptions) =>
      images.import(template, { kind: 'remote', ...remoteOf(name), type }, options),
    close: () => client.close(),
  };
}

async function requireFile(path: string): Promise<void> {
  const isFile = (await stat(path).catch(() => undefined))?.isFile() ?? false;
  if (!isFile) throw new AppError('invalid_request', `There is no file ${path}.`);
}

/** The metadata goes first. */
function inOrder(files: readonly string[]): readonly string[] {
  const isDisk = (file = '') => /\.(?:squashfs|img|qcow2)$/.test(file);
  return isDisk(files[0]) && !isDisk(files[1]) ? files.toReversed() : files;
}

function remoteOf(name: string): { server: string; alias: string } {
  const [, remote = '', alias = ''] = /^([a-z0-9-]+):([^/].*)$/.exec(name) ?? [];
  const known = imageServers[remote];
  if (known !== undefined) return { server: known, alias };
  const [, server = '', named = ''] = /^(https:\/\/[^#\s]+)#(\S+)$/.exec(name) ?? [];
  if (URL.canParse(server)) return { server, alias: named };
  throw new AppError(
    'invalid_request',
    `"${name}" is no image of a server. Name one as images:debian/12 or https://images.example.com#debian/12.`,
  );
}
