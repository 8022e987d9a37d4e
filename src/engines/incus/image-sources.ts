/** Where the packages of an image come from: by default from where this host has its own. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What is fetched and for whom. */
export interface Distribution {
  /** Such as `bookworm`. */
  readonly suite: string;
  /** As dpkg calls it, such as `amd64`. */
  readonly architecture: string;
}

const etc = '/etc';

/** The suite of this host where Debian or Ubuntu is installed, else the stable one of Debian. */
export function ownSuite(folder = etc): string {
  const fields = new Map(
    read(join(folder, 'os-release'))
      .split('\n')
      .map((line): [string, string] => {
        const [name = '', value = ''] = line.split('=', 2);
        return [name, value.replace(/^"|"$/g, '')];
      }),
  );
  const isKnown = ['debian', 'ubuntu'].includes(fields.get('ID') ?? '');
  return (isKnown && fields.get('VERSION_CODENAME')) || 'stable';
}

/** Lines of sources.list that this host has for the suite and its updates; empty where it has none. */
export function ownSources(suite: string, folder = etc): string[] {
  const parts = join(folder, 'apt/sources.list.d');
  const files = names(parts).map((name) => join(parts, name));
  const lines = [join(folder, 'apt/sources.list'), ...files].flatMap((file) =>
    file.endsWith('.sources') ? stanzaLines(read(file)) : listLines(file, read(file)),
  );
  const suites = [suite, `${suite}-updates`, `${suite}-security`];
  const fitting = lines.filter((line) => suites.includes(line.suite));
  // Without the suite itself nothing can be installed.
  if (!fitting.some((line) => line.suite === suite)) return [];
  return [...new Set(fitting.map(lineOf))];
}

interface SourceLine {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  readonly signedBy: string | undefined;
}

function lineOf({ uri, suite, components, signedBy }: SourceLine): string {
  const options = signedBy === undefined ? '' : `[signed-by=${signedBy}] `;
  return `deb ${options}${uri} ${suite} ${components.join(' ')}`;
}

/** The parts that have free software that distributions keep up: enough for an image. */
const wanted = ['main', 'universe'];

/** Such as `deb [signed-by=/usr/share/keyrings/debian.gpg] http://deb.debian.org/debian bookworm main`. */
function listLines(file: string, text: string): SourceLine[] {
  if (!file.endsWith('.list')) return [];
  return text.split('\n').flatMap((line) => {
    const match = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)$/.exec(line.trim());
    if (!match) return [];
    const [, options = '', uri = '', suite = '', components = ''] = match;
    const signedBy = /(?:^|\s)signed-by=(\S+)/i.exec(options)?.[1];
    return usable([uri], [suite], components.split(/\s+/), signedBy);
  });
}

/** Deb822 style: fields with names, stanzas apart by an empty line. */
function stanzaLines(text: string): SourceLine[] {
  return text.split(/\n\s*\n/).flatMap((stanza) => {
    const field = (name: string): string[] =>
      (new RegExp(`^${name}:(.*(?:\\n[ \\t].*)*)`, 'im').exec(stanza)?.[1] ?? '')
        .trim()
        .split(/\s+/)
        .filter((word) => word !== '');
    if (!field('Types').includes('deb') || field('Enabled')[0] === 'no') return [];
    return usable(field('URIs'), field('Suites'), field('Components'), field('Signed-By')[0]);
  });
}

/** What works inside the image as well: a mirror on the network, and a keyring that a package brings. */
function usable(
  uris: readonly string[],
  suites: readonly string[],
  all: readonly string[],
  keyring: string | undefined,
): SourceLine[] {
  const components = all.filter((component) => wanted.includes(component));
  const signedBy = keyring?.startsWith('/usr/share/keyrings/') ? keyring : undefined;
  if (components.length === 0) return [];
  return uris
    .filter((uri) => /^https?:\/\//.test(uri))
    .flatMap((uri) => suites.map((suite) => ({ uri, suite, components, signedBy })));
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}
