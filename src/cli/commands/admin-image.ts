import type { Command } from 'commander';
import { CliError, exitCodes } from '../exit-codes.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import { withProgress } from '../progress.ts';
import { type ImageAdmin, openImages } from '../service.ts';
import type { Terminal } from '../terminal.ts';
import { overrides } from './serve.ts';

interface ImageFlags {
  readonly data?: string;
  readonly json?: boolean;
}

interface BuildFlags extends ImageFlags {
  readonly name: string;
  readonly suite?: string;
  readonly mirror?: string;
  readonly fresh?: boolean;
}

interface ImportFlags extends ImageFlags {
  readonly from?: string;
  readonly vm?: boolean;
  readonly unchecked?: boolean;
}

type Image = Awaited<ReturnType<ImageAdmin['list']>>[number];

const examples = (...lines: readonly string[]): string => `
Examples:
${lines.map((line) => `  $ ${line}`).join('\n')}

Templates of the Incus engine are images. Takes the settings of berth serve (BERTH_INCUS_*) from the environment.`;

export function addAdminImageCommands(admin: Command, terminal: Terminal): void {
  const image = admin
    .command('image')
    .description('what instances of the Incus engine start from')
    .addHelpText('after', examples('berth admin image build', 'berth admin image list'));
  addBuildCommand(image, terminal);
  addImportCommand(image, terminal);
  image
    .command('list')
    .description('list the templates and their images')
    .option('--json', 'print the answer as JSON')
    .addHelpText('after', examples('berth admin image list --json'))
    .action((flags: ImageFlags) => list(terminal, flags));
  image
    .command('remove')
    .description('take a template away; instances and snapshots of it stay')
    .argument('<name>', 'of the template')
    .option('--json', 'print the answer as JSON')
    .addHelpText('after', examples('berth admin image remove old'))
    .action((name: string, flags: ImageFlags) => remove(terminal, name, flags));
}

function addBuildCommand(image: Command, terminal: Terminal): void {
  image
    .command('build')
    .description('build the default image from packages of Debian or Ubuntu, and import it')
    .option('--name <template>', 'the template that is to start from it', 'base')
    .option('--suite <name>', 'such as bookworm (default: the one of this host)')
    .option('--mirror <url>', 'where packages come from (default: where this host has its own)')
    .option('--fresh', 'build it anew though nothing changed, for newer packages')
    .option('--data <dir>', 'keeps what was built (default: BERTH_DATA, else .berth)')
    .option('--json', 'print the answer as JSON')
    .addHelpText(
      'after',
      examples('berth admin image build', 'berth admin image build --name trixie --suite trixie'),
    )
    .action((flags: BuildFlags) => build(terminal, flags));
}

function addImportCommand(image: Command, terminal: Terminal): void {
  image
    .command('import')
    .description('make a template of an image; docs/incus.md says what it needs')
    .argument('<name>', 'of the template')
    .argument('[files...]', 'the image: one tar file, or the metadata and the root file system')
    .option('--from <image>', 'of an image server, such as images:debian/12')
    .option('--vm', 'with --from: the image for virtual machines')
    .option('--unchecked', 'take it though something is missing in it')
    .option('--json', 'print the answer as JSON')
    .addHelpText(
      'after',
      examples(
        'berth admin image import ml metadata.tar.xz rootfs.squashfs',
        'berth admin image import plain --from images:debian/12 --unchecked',
      ),
    )
    .action((name: string, files: string[], flags: ImportFlags) =>
      importImage(terminal, name, files, flags),
    );
}

async function withImages<T>(
  terminal: Terminal,
  { data }: ImageFlags,
  work: (images: ImageAdmin) => Promise<T>,
): Promise<T> {
  const images = await openImages({ ...terminal.env, ...overrides({ ...(data && { data }) }) });
  try {
    return await work(images);
  } finally {
    images.close();
  }
}

async function build(terminal: Terminal, flags: BuildFlags): Promise<void> {
  const image = await withImages(terminal, flags, (images) =>
    withProgress(terminal, 'Building the image ...', (update) =>
      images.build(flags.name, buildSettings(flags), (line) => update(line.trim())),
    ),
  );
  show(terminal, flags, image);
}

const buildSettings = ({ suite, mirror, fresh }: BuildFlags) => ({
  ...(suite !== undefined && { suite }),
  ...(mirror !== undefined && { mirror }),
  ...(fresh !== undefined && { fresh }),
});

async function importImage(
  terminal: Terminal,
  name: string,
  files: readonly string[],
  flags: ImportFlags,
): Promise<void> {
  const { from, vm = false, unchecked } = flags;
  if ((from === undefined) === (files.length === 0) || files.length > 2)
    throw new CliError(
      'Name one or two files of the image, or an image of a server with --from.',
      exitCodes.usage,
    );
  if (vm && from === undefined)
    throw new CliError(
      '--vm goes with --from: files say themselves what they are.',
      exitCodes.usage,
    );
  const image = await withImages(terminal, flags, (images) =>
    withProgress(terminal, 'Importing the image ...', (update) => {
      const options = { unchecked, progress: update };
      if (from === undefined) return images.importFiles(name, files, options);
      const type = vm ? 'virtual-machine' : 'container';
      return images.importRemote(name, { name: from, type }, options);
    }),
  );
  show(terminal, flags, image);
}

async function list(terminal: Terminal, flags: ImageFlags): Promise<void> {
  const images = await withImages(terminal, flags, (open) => open.list());
  if (flags.json) return printJson(terminal, images);
  if (images.length === 0)
    return printLine(terminal, 'There are no templates. Make one with: berth admin image build');
  printTable(
    terminal,
    ['TEMPLATE', 'TYPE', 'SIZE', 'IMPORTED', 'FINGERPRINT', 'DESCRIPTION'],
    images.map((image) => [
      image.template,
      image.type,
      sizeOf(image),
      readableTime(image.importedAt),
      image.fingerprint.slice(0, 12),
      image.description,
    ]),
  );
}

async function remove(terminal: Terminal, name: string, flags: ImageFlags): Promise<void> {
  await withImages(terminal, flags, (images) => images.remove(name));
  if (flags.json) printJson(terminal, { template: name, removed: true });
  else printLine(terminal, `The template ${name} is removed.`);
}

function show(terminal: Terminal, flags: ImageFlags, image: Image): void {
  const { template, fingerprint } = image;
  const text = `The template ${template} starts from the image ${fingerprint.slice(0, 12)} (${sizeOf(image)}).`;
  if (flags.json) printJson(terminal, image);
  else for (const line of [text, howToUse(template)]) printLine(terminal, line);
}

const howToUse = (template: string): string =>
  template === 'base'
    ? 'Without a catalog of yours, every new instance starts from it.'
    : `To offer it, list a template with "source: ${template}" in the catalog (docs/catalog.md), then restart the service.`;

const sizeOf = ({ sizeBytes }: Image): string => `${Math.ceil(sizeBytes / 1e6)} MB`;
