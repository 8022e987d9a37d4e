/**
 * Removes a private Incus (incus-host.ts) with everything it has on this host: by what the kernel says and without a
 * word to the daemon, so that it works alike after a good end, a kill and a crash. Nothing here may throw half-way.
 *
 * Run as a program (remover.ts) with a folder.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { allProcesses } from './processes.ts';
import { ownerEnded } from './remover.ts';
import { eventually } from './waiting.ts';

/** Not /tmp, which is in memory on some systems: a pool of disks is in here. */
const PARENT = '/var/tmp';
const PREFIX = 'berth-test-incus-';
/** What the programs that remove have in their names. */
const REMOVERS = 'removal.ts';
const END_TIMEOUT_MS = 10_000;
const COMMAND_TIMEOUT_MS = 20_000;

export const stateFolderOf = (folder: string): string => join(folder, 'state');

function attempt<T>(work: () => T, fallback: T): T {
  try {
    return work();
  } catch {
    return fallback;
  }
}

const read = (path: string): string => attempt(() => readFileSync(path, 'utf8'), '');
const names = (folder: string): string[] => attempt(() => readdirSync(folder), []);
const run = (program: string, ...words: string[]): string =>
  spawnSync(program, words, { encoding: 'utf8', timeout: COMMAND_TIMEOUT_MS }).stdout ?? '';

/** A process by more than its number, which comes round again: proc_pid_stat(5), field 22 is when it started. */
function identity(pid: number): string {
  const stat = read(`/proc/${pid}/stat`);
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return stat === '' || fields[0] === 'Z' ? 'none' : `${pid}-${fields[19]}`;
}

/** Named after the process that it is for. */
export const folderOf = (pid: number): string => join(PARENT, `${PREFIX}${identity(pid)}`);

/** What the names of its bridges and projects begin with; both are short for Linux's sake. */
export function prefixOf(folder: string): string {
  const pid = Number(basename(folder).slice(PREFIX.length).split('-')[0]);
  return `b${pid.toString(36)}`;
}

/** What runs left whose process lives no more. */
export function abandonedFolders(): string[] {
  return names(PARENT)
    .filter((name) => name.startsWith(PREFIX))
    .filter((name) => name.slice(PREFIX.length) !== identity(Number(name.split('-')[3])))
    .map((name) => join(PARENT, name));
}

export async function removeIncus(folder: string): Promise<void> {
  const bridges = names(join(stateFolderOf(folder), 'networks'));
  await endDaemons(folder, [stateFolderOf(folder)]);
  for (const bridge of bridges) removeBridge(bridge);
  removeRules(prefixOf(folder));
  endLxcfs(folder);
  removeFolder(folder);
}

/** Ends the daemons below a folder with all that they started; their networks are left. */
export async function endDaemons(folder: string, stateFolders: readonly string[]): Promise<void> {
  const guests = stateFolders.flatMap((state) => names(join(state, 'containers')));
  await endProcesses(folder);
  unmountAll(folder);
  for (const guest of guests) removeControlGroups(guest);
  for (const state of stateFolders) removeProfiles(state);
}

export const removeFolder = (folder: string): void =>
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });

interface Found {
  readonly pid: number;
  readonly parent: number;
  readonly isMonitor: boolean;
}

/** Processes of ours, by the folder in their command or environment; the guests' own are below their monitors. */
function processesOf(folder: string): Found[] {
  return allProcesses()
    .filter(({ command }) => !command.includes(REMOVERS))
    .filter(({ pid, command }) => {
      if (command.includes(`${folder}/`)) return true;
      const environment = read(`/proc/${pid}/environ`);
      // Tests and services that go on although their run was killed; not the shells that tidy up after them.
      const isUser = environment.includes(`=unix:${folder}/`) && command.includes('node');
      return isUser || environment.includes(`=${folder}/`);
    })
    .map(({ pid, command }) => {
      return { pid, parent: parentOf(pid), isMonitor: command.startsWith('[lxc ') };
    });
}

function parentOf(pid: number): number {
  return Number(/^PPid:\s*(\d+)/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0);
}

/** First the daemon and its users, so that nothing new comes; then the guests, whose monitors tidy up and end by themselves. */
async function endProcesses(folder: string): Promise<void> {
  for (const { pid, isMonitor } of processesOf(folder)) if (!isMonitor) kill(pid);
  const monitors = new Set(
    processesOf(folder)
      .filter((one) => one.isMonitor)
      .map((one) => one.pid),
  );
  for (const { pid } of allProcesses()) if (monitors.has(parentOf(pid))) kill(pid);
  const gone = () => (processesOf(folder).length === 0 ? true : undefined);
  await eventually('the end of the guests', END_TIMEOUT_MS, gone).catch(() => undefined);
  for (const { pid } of processesOf(folder)) kill(pid);
  await eventually('the end of everything', END_TIMEOUT_MS, gone).catch(() => undefined);
}

function kill(pid: number): void {
  attempt(() => process.kill(pid, 'SIGKILL'), false);
}

function unmountAll(folder: string): void {
  for (let again = 0; again < 3; again += 1) {
    const mounts = read('/proc/self/mountinfo')
      .split('\n')
      .map((line) => line.split(' ')[4] ?? '')
      .filter((path) => path.startsWith(`${folder}/`));
    for (const path of mounts.reverse()) run('umount', '--lazy', path);
  }
  for (const name of names('/sys/block')) {
    const file = read(`/sys/block/${name}/loop/backing_file`);
    if (file.startsWith(`${folder}/`)) run('losetup', '--detach', `/dev/${name}`);
  }
}

/** Of a guest that was killed both ends of its cable are on the host; they go together. */
function removeBridge(bridge: string): void {
  const ports = new Set([...names(`/sys/class/net/${bridge}/brif`), ...lostPorts(bridge)]);
  for (const port of ports) run('ip', 'link', 'delete', port);
  run('ip', 'link', 'delete', bridge);
}

/** All daemons of a host share these tables; the chains are named after bridges and guests, those after projects. */
function removeRules(prefix: string): void {
  const chains = listChains().filter(({ table }) => table === 'incus');
  const ours = chains.filter(({ name }) => name.includes(`.${prefix}-`));
  for (const { family, table, name } of ours) run('nft', 'flush', 'chain', family, table, name);
  for (const { family, table, name } of ours) run('nft', 'delete', 'chain', family, table, name);
  for (const family of new Set(ours.map((one) => one.family)))
    if (chains.every((one) => one.family !== family || ours.includes(one)))
      run('nft', 'delete', 'table', family, 'incus');
}

/** Of guests that ended while there was no Incus: by the engine's names for the bridge's addresses (all have a /24). */
function lostPorts(bridge: string): string[] {
  const address = /inet (\d+)\.(\d+)\.(\d+)\./.exec(run('ip', '-4', 'address', 'show', bridge));
  if (address === null) return [];
  const bytes = address.slice(1).map((byte) => Number(byte).toString(16).padStart(2, '0'));
  return names('/sys/class/net').filter((name) => name.startsWith(`bth${bytes.join('')}`));
}

interface Chain {
  readonly family: string;
  readonly table: string;
  readonly name: string;
}

/** While others change the rules, nft may come back with nothing. */
function listChains(): Chain[] {
  for (let tries = 0; tries < 10; tries += 1) {
    const text = run('nft', '--json', 'list', 'chains');
    const listed = attempt(() => JSON.parse(text) as { nftables: { chain?: Chain }[] }, undefined);
    if (listed !== undefined) return listed.nftables.flatMap(({ chain }) => chain ?? []);
  }
  return [];
}

/** Control groups of guests whose monitor could not remove them: `lxc.payload.NAME` in each hierarchy. */
function removeControlGroups(guest: string): void {
  const roots = ['', ...names('/sys/fs/cgroup')].map((name) => join('/sys/fs/cgroup', name));
  for (const root of roots)
    for (const kind of ['payload', 'monitor']) removeGroup(join(root, `lxc.${kind}.${guest}`));
}

function removeGroup(folder: string): void {
  if (!existsSync(folder)) return;
  const below = attempt(() => readdirSync(folder, { withFileTypes: true }), []);
  for (const entry of below) if (entry.isDirectory()) removeGroup(join(folder, entry.name));
  attempt(() => rmdirSync(folder), undefined);
}

/** Their names end in the daemon's folder. */
function removeProfiles(stateFolder: string): void {
  const security = '/sys/kernel/security/apparmor';
  const loaded = read(`${security}/profiles`).split('\n');
  for (const line of loaded.filter((one) => one.includes(`<${stateFolder}`)))
    attempt(
      () => writeFileSync(`${security}/.remove`, line.replace(/ \([a-z]+\)$/, '')),
      undefined,
    );
}

const lxcfsNoteOf = (folder: string): string => join(folder, 'lxcfs');

/** A run that had to start lxcfs, which all of a host's Incus share, says so. */
export function noteLxcfs(folder: string): void {
  writeFileSync(lxcfsNoteOf(folder), '');
}

/** The last one out ends it; where systemd minds it, it stays as the package has it. */
function endLxcfs(folder: string): void {
  if (!existsSync(lxcfsNoteOf(folder))) return;
  const folders = names(PARENT).filter((name) => name.startsWith(PREFIX));
  const other = folders.map((name) => join(PARENT, name)).find((one) => one !== folder);
  if (other !== undefined) {
    attempt(() => noteLxcfs(other), undefined);
    return;
  }
  const programs = allProcesses();
  if (programs.some(({ command }) => /^(?:\S*\/)?incusd |^\[lxc monitor\]/.test(command))) return;
  for (const { pid, command } of programs)
    if (/^\S*\/lxcfs \/var\/lib\/lxcfs\s*$/.test(command)) kill(pid);
  run('umount', '--lazy', '/var/lib/lxcfs');
}

if (import.meta.main) {
  const folder = process.argv[2] ?? '';
  if (!folder.startsWith(join(PARENT, PREFIX))) throw new Error(`${folder} is no folder of ours.`);
  await ownerEnded();
  await removeIncus(folder);
}
