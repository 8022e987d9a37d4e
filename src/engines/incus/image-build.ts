/** Builds the default image from packages of the distribution: no image server is needed. */

import { randomUUID } from 'node:crypto';
import {
  chmod,
  copyFile,
  mkdir,
  readdir,
  readlink,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EngineError } from '../engine.ts';
import { missingPackages, runTool } from './build-tools.ts';
import {
  imageFiles,
  leftOut,
  metadataOf,
  ownArchitecture,
  packages,
  recipeHash,
} from './image-recipe.ts';
import { type Distribution, ownSources, ownSuite } from './image-sources.ts';

export interface BuildOptions {
  /** Images that were built stay in here. */
  readonly cacheFolder: string;
  /** Undefined: the one of this host. */
  readonly suite?: string | undefined;
  /** Where packages come from; undefined: from where this host has its own. */
  readonly mirror?: string | undefined;
  /** Build it though there is one, for newer packages. */
  readonly fresh?: boolean | undefined;
  readonly progress: (line: string) => void;
  readonly now?: () => Date;
}

/** The two parts of an image; `rootfs` is undefined where one file has it all. */
export interface ImageFiles {
  readonly metadata: string;
  readonly rootfs: string | undefined;
}

export type BuiltImage = ImageFiles & {
  /** It was there already. */
  readonly cached: boolean;
};

/** What names of folders begin with that are of use to one build alone: in the cache, and where temporary files go. */
const unfinished = '.building-';
const scratch = 'berth-building-';

/** The image of this recipe: the one in the cache, else a new one, which takes a minute. */
export async function buildImage(options: BuildOptions): Promise<BuiltImage> {
  const { cacheFolder, suite = ownSuite(), mirror, fresh = false } = options;
  const distribution = { suite, architecture: ownArchitecture() };
  const mirrors = mirror === undefined ? ownSources(suite) : [mirror];
  const folder = join(cacheFolder, recipeHash(distribution, mirrors));
  const image = {
    metadata: join(folder, 'metadata.tar.gz'),
    rootfs: join(folder, 'rootfs.squashfs'),
  };
  if (!fresh && (await isThere(folder))) return { ...image, cached: true };
  requireTools();
  await mkdir(cacheFolder, { recursive: true, mode: 0o700 });
  await removeUnfinished(cacheFolder, unfinished);
  await removeUnfinished(tmpdir(), scratch);
  const own = `${process.pid}-${randomUUID()}`;
  const work = join(cacheFolder, `${unfinished}${own}`);
  // The user who downloads packages may pass through here, but not through the cache.
  const temporary = join(tmpdir(), `${scratch}${own}`);
  await mkdir(work, { mode: 0o700 });
  await mkdir(temporary, { mode: 0o711 });
  try {
    await build({ work, temporary }, distribution, mirrors, options);
    const result = join(work, 'image');
    await keep(result, folder);
    return { ...image, cached: false };
  } finally {
    for (const one of [work, temporary]) await rm(one, { recursive: true, force: true });
  }
}

interface Folders {
  readonly work: string;
  readonly temporary: string;
}

function requireTools(): void {
  if (process.getuid?.() !== 0)
    throw new EngineError(
      'failed',
      'Only root can build an image: start the command again with sudo.',
    );
  const missing = missingPackages();
  if (missing.length > 0)
    throw new EngineError(
      'failed',
      `This host cannot build images yet. Install what is missing, then try again: apt-get install ${missing.join(' ')}`,
    );
}

async function build(
  { work: folder, temporary }: Folders,
  distribution: Distribution,
  mirrors: readonly string[],
  { progress, now = () => new Date() }: BuildOptions,
): Promise<void> {
  const { suite, architecture } = distribution;
  await prepare(folder);
  progress(`Installing packages of ${suite} (${architecture}) into a new tree ...`);
  const onLine = (line: string) => {
    const step = /^I: (.*\.\.\.)$/.exec(line)?.[1];
    if (step !== undefined) progress(`  ${step}`);
  };
  const words = mmdebstrapWords(distribution, mirrors);
  await runTool('mmdebstrap', words, { folder, temporary, onLine, ownMounts: true });
  progress('Packing the tree ...');
  await mkdir(join(folder, 'image'));
  const packing = ['-comp', 'zstd', '-quiet', '-no-progress', 'image/rootfs.squashfs'];
  await runTool('sqfstar', packing, { folder, input: 'rootfs.tar' });
  await writeFile(join(folder, 'metadata.yaml'), metadataOf(distribution, now()));
  await runTool('tar', ['-czf', 'image/metadata.tar.gz', ...asRoot, 'metadata.yaml'], { folder });
}

const asRoot = ['--owner=0', '--group=0', '--numeric-owner'];

/** The files of the image, the program that does the rest, and how this host fetches packages, side by side. */
async function prepare(folder: string): Promise<void> {
  // Whatever owner and mode a checkout has given them.
  const modes = ['--sort=name', '--mode=u=rwX,go=rX', ...asRoot];
  const source = ['-C', join(imageFiles, 'rootfs'), '.'];
  await runTool('tar', ['-cf', 'overlay.tar', ...modes, ...source], { folder });
  await copyFile(join(imageFiles, 'customize'), join(folder, 'customize'));
  await chmod(join(folder, 'customize'), 0o700);
  const format = '%F "%v";%n';
  const settings = await runTool('apt-config', ['dump', '--format', format, 'Acquire'], { folder });
  await writeFile(join(folder, 'apt.conf'), ofTransport(settings), { mode: 0o600 });
}

/** Proxies, retries, time-outs and the like; not what to fetch. */
const ofTransport = (settings: string): string =>
  settings
    .split('\n')
    .filter((line) => !/^Acquire(?: |::(?:IndexTargets|Languages|Changelogs|cdrom))/i.test(line))
    .join('\n');

function mmdebstrapWords(
  { suite, architecture }: Distribution,
  mirrors: readonly string[],
): string[] {
  return [
    ...['--mode=root', '--variant=minbase', '--format=tar', `--architectures=${architecture}`],
    ...['--aptopt=apt.conf', '--aptopt=Acquire::Languages "none"'],
    ...leftOut.map((option) => `--dpkgopt=${option}`),
    `--include=${packages.join(',')}`,
    ...['--customize-hook=tar-in overlay.tar /', '--customize-hook=./customize'],
    ...['--', suite, 'rootfs.tar', ...mirrors],
  ];
}

const isThere = async (folder: string): Promise<boolean> =>
  (await stat(folder).catch(() => undefined))?.isDirectory() ?? false;

/** In one step: whoever looks sees the old one, none, or the whole new one. */
async function keep(result: string, folder: string): Promise<void> {
  const old = `${result}.old`;
  if (await isThere(folder)) await rename(folder, old);
  await rename(result, folder).catch(async (error: unknown) => {
    // Somebody else has built the same at the same time.
    if (!(await isThere(folder))) throw error;
  });
}

/** Of builds that were killed; those that still run are let be. */
async function removeUnfinished(folder: string, prefix: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const pid = name.startsWith(prefix) && /^\d+(?=-)/.exec(name.slice(prefix.length))?.[0];
    if (pid && !(await runs(Number(pid))))
      await rm(join(folder, name), { recursive: true, force: true });
  }
}

/** What has ended has no program any more, though it may still be listed. */
const runs = (pid: number): Promise<boolean> =>
  readlink(`/proc/${pid}/exe`).then(
    () => true,
    () => false,
  );
