/**
 * Reads the host's process table (proc(5)). All of it is synchronous: each call is a few microseconds, and
 * a process table read in one go cannot change between two awaits.
 */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** A process for ever: the number alone is used again, the number and its start time are not. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks since boot. */
  readonly startTicks: string;
}

export interface ProcessStat extends ProcessIdentity {
  readonly parentPid: number;
  /** One letter: R, S, D, T (stopped), Z (zombie), X (dead) ... */
  readonly state: string;
  readonly threads: number;
  /** What it has computed, in clock ticks. */
  readonly cpuTicks: number;
}

function readProc(pid: number, name: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1');
  } catch {
    return undefined;
  }
}

/** Undefined when there is no such process. */
export function readStat(pid: number): ProcessStat | undefined {
  const text = readProc(pid, 'stat');
  if (text === undefined) return undefined;
  // The name in parentheses is the process's own choice and may hold blanks and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state = '', parentPid = ''] = fields;
  const [threads, startTicks] = [Number(fields[17]), fields[19] ?? ''];
  const cpuTicks = Number(fields[11]) + Number(fields[12]);
  return { pid, state, parentPid: Number(parentPid), threads, startTicks, cpuTicks };
}

/** Still the same process, and not merely waiting to be reaped. */
export function isAlive(process: ProcessIdentity): boolean {
  const stat = readStat(process.pid);
  return stat !== undefined && stat.startTicks === process.startTicks && !isDead(stat);
}

/** A zombie with threads lives: only the first of them has ended. */
function isDead(stat: ProcessStat): boolean {
  return stat.state === 'X' || (stat.state === 'Z' && stat.threads <= 1);
}

/** What a process has done so far. */
export interface Progress extends Pick<ProcessStat, 'cpuTicks'> {
  /** What it has read and written, as text (proc_pid_io(5)). */
  readonly io: string;
}

/** A process that has ended has done nothing. */
export const progressOf = (pid: number): Progress => ({
  io: readProc(pid, 'io') ?? '',
  cpuTicks: readStat(pid)?.cpuTicks ?? 0,
});

/** Every process number of the host. */
export function listPids(): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0);
}

/** Is it in this process's pid namespace? Asked so that it is told of every process, whoever it belongs to. */
export function isNeighbour(pid: number): boolean {
  return /^NSpid:\t\d+$/m.test(readProc(pid, 'status') ?? '');
}

/** The identity of a process's pid namespace, such as `pid:[4026531836]`. */
export function pidNamespaceOf(pid: number | 'self'): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined;
  }
}

/** Living processes of a pid namespace, as the host numbers them. */
export function membersOf(pidNamespace: string): ProcessStat[] {
  return listPids()
    .filter((pid) => pidNamespaceOf(pid) === pidNamespace)
    .flatMap((pid) => livingStat(pid));
}

function livingStat(pid: number): ProcessStat[] {
  const stat = readStat(pid);
  return stat === undefined || isDead(stat) ? [] : [stat];
}

/** Living children, grandchildren and so on; nearest first. */
export function descendantsOf(pid: number): ProcessStat[] {
  const all = listPids().flatMap((candidate) => livingStat(candidate));
  const found: ProcessStat[] = [];
  let parents = new Set([pid]);
  while (parents.size > 0) {
    const children = all.filter((stat) => parents.has(stat.parentPid));
    found.push(...children);
    parents = new Set(children.map((stat) => stat.pid));
  }
  return found;
}

/** The real user id and the command line of a living process. */
export function readCommand(pid: number): { uid: number; words: string[] } | undefined {
  const status = readProc(pid, 'status');
  const commandLine = readProc(pid, 'cmdline');
  if (status === undefined || commandLine === undefined || commandLine === '') return undefined;
  const uid = /^Uid:\t(\d+)/m.exec(status)?.[1];
  return { uid: Number(uid), words: commandLine.split('\0').slice(0, -1) };
}

/** Sends a signal, unless the process is gone or its number belongs to another one by now. */
export function signal(process: ProcessIdentity, name: NodeJS.Signals): void {
  if (readStat(process.pid)?.startTicks !== process.startTicks) return;
  try {
    globalThis.process.kill(process.pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

const LISTENING = '0A';

/** Inodes of the sockets of this network namespace that listen on a TCP port (proc(5), /proc/net/tcp). */
function listeningSockets(port: number): Set<string> {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  const tables = ['tcp', 'tcp6'].map((name) => readFileSync(`/proc/self/net/${name}`, 'latin1'));
  const rows = tables.flatMap((table) => table.split('\n').map((row) => row.trim().split(/ +/)));
  const found = rows.filter((row) => row[3] === LISTENING && row[1]?.endsWith(`:${wanted}`));
  return new Set(found.map((row) => `socket:[${row[9]}]`));
}

/** Does one of these processes listen on the port? `hidden`: none is seen to, and not all may be looked at. */
export function listensOn(port: number, pids: readonly number[]): 'yes' | 'no' | 'hidden' {
  const sockets = listeningSockets(port);
  const files = pids.map(openFiles);
  if (files.some((links) => links !== 'forbidden' && links.some((link) => sockets.has(link)))) {
    return 'yes';
  }
  return files.includes('forbidden') ? 'hidden' : 'no';
}

/** What a process has open; nothing while it is being set up or torn down. */
function openFiles(pid: number): string[] | 'forbidden' {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((name) => readlinkSync(`/proc/${pid}/fd/${name}`));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES' ? 'forbidden' : [];
  }
}
