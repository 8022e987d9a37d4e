/** What the default image is made of. Change anything here and the next build makes a new image. */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Distribution } from './image-sources.ts';

/** Files that go into the image as they are, and the program that does the rest. */
export const imageFiles = join(import.meta.dirname, 'image-files');

export const packages: readonly string[] = [
  // The system. Without udev, systemd-networkd waits for ever: /sys of a guest can be written.
  ...['systemd-sysv', 'systemd-resolved', 'udev', 'dbus', 'libpam-systemd'],
  ...['openssh-server', 'openssh-sftp-server', 'openssh-client', 'sudo'],
  ...['iproute2', 'iputils-ping', 'netbase', 'ca-certificates', 'curl'],
  // In the smallest tree of Debian anyway, but not in Ubuntu's.
  'apt',
  ...['procps', 'less', 'nano', 'rsync'],
];

/** Options of dpkg: no manual pages, no translations. */
export const leftOut: readonly string[] = [
  'path-exclude=/usr/share/man/*',
  'path-exclude=/usr/share/locale/*',
  'path-include=/usr/share/locale/locale.alias',
  'path-exclude=/usr/share/doc/*',
  'path-include=/usr/share/doc/*/copyright',
];

const incusNames: Readonly<Record<string, string>> = { amd64: 'x86_64', arm64: 'aarch64' };

/** As dpkg calls the architecture of this host. */
export function ownArchitecture(): string {
  return process.arch === 'x64' ? 'amd64' : process.arch;
}

/**
 * `metadata.yaml` of the image; JSON is YAML. It has no templates: Incus writes them from outside, as root of the
 * host, and in a copy the folders that it writes to are the tenant's. The guest does it (image-files/.../identity).
 */
export function metadataOf({ suite, architecture }: Distribution, now: Date): string {
  return JSON.stringify({
    architecture: incusNames[architecture] ?? architecture,
    creation_date: Math.floor(now.getTime() / 1000),
    properties: { description: `Berth base image (${suite})`, os: 'Linux', release: suite },
  });
}

/** Names the image that this recipe makes: the folder of the cache that it is kept in. */
export function recipeHash(distribution: Distribution, mirrors: readonly string[]): string {
  const hash = createHash('sha256');
  hash.update(JSON.stringify([distribution, mirrors, packages, leftOut]));
  const entries = readdirSync(imageFiles, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  for (const path of files.map(({ parentPath, name }) => join(parentPath, name)).sort()) {
    hash.update(JSON.stringify(path.slice(imageFiles.length)));
    hash.update(readFileSync(path));
  }
  return hash.digest('hex').slice(0, 32);
}
