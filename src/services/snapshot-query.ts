import { invalidRequest } from '../domain/errors.ts';
import { parseReference, type Reference } from '../domain/ids.ts';
import { type SnapshotStatus, snapshotStatuses } from '../domain/lifecycle.ts';
import type { SnapshotPosition } from '../store/snapshots.ts';
import { snapshotNamePattern } from './snapshots.ts';

/** What a caller may ask of the list, as texts. */
export interface SnapshotParameters {
  readonly status?: string;
  readonly name?: string;
  readonly instance?: string;
  readonly fits_gb?: string;
  readonly limit?: string;
  readonly after?: string;
}

export interface SnapshotQuery {
  readonly status?: SnapshotStatus;
  readonly name?: string;
  readonly instance?: Reference;
  readonly fitsGb?: number;
  readonly limit?: number;
  readonly after?: SnapshotPosition;
}

const longestPage = 1000;
const largestDiskGb = 1_000_000;

/** Undefined when nothing was asked for: the plain list. Throws a 400 that names the first bad parameter. */
export function readSnapshotQuery(given: SnapshotParameters): SnapshotQuery | undefined {
  const { status, name, instance, fits_gb: fitsGb, limit, after } = given;
  const query: SnapshotQuery = {
    ...(status !== undefined && { status: readStatus(status) }),
    ...(name !== undefined && { name: readName(name) }),
    ...(instance !== undefined && { instance: readInstance(instance) }),
    ...(fitsGb !== undefined && { fitsGb: readNumber('fits_gb', fitsGb, largestDiskGb) }),
    ...(limit !== undefined && { limit: readNumber('limit', limit, longestPage) }),
    ...(after !== undefined && { after: readCursor(after) }),
  };
  return Object.keys(query).length === 0 ? undefined : query;
}

function readStatus(text: string): SnapshotStatus {
  const found = snapshotStatuses.find((status) => status === text);
  return found ?? refuse('status', `one of ${snapshotStatuses.join(', ')}`);
}

function readName(text: string): string {
  if (snapshotNamePattern.test(text)) return text;
  return refuse('name', 'the whole name of a snapshot, such as before-upgrade');
}

const readInstance = (text: string): Reference =>
  parseReference(text) ?? refuse('instance', 'the number or the UUID of an instance');

function readNumber(parameter: string, text: string, max: number): number {
  const value = /^[0-9]{1,9}$/.test(text) ? Number(text) : Number.NaN;
  return value >= 1 && value <= max ? value : refuse(parameter, `a whole number from 1 to ${max}`);
}

/** Where the next page begins, as callers get it: they hand it back and know nothing of what is in it. */
export function writeCursor({ createdAtSeconds, id }: SnapshotPosition): string {
  return Buffer.from(`${createdAtSeconds}.${id}`).toString('base64url');
}

function readCursor(text: string): SnapshotPosition {
  const plain = Buffer.from(text, 'base64url').toString('latin1');
  const [, seconds, id] = /^([0-9]{1,12})\.([0-9a-f-]{36})$/.exec(plain) ?? [];
  if (seconds === undefined || id === undefined)
    return refuse('after', 'what the Link of the page before has in it');
  return { createdAtSeconds: Number(seconds), id };
}

function refuse(parameter: string, expected: string): never {
  throw invalidRequest(`The parameter "${parameter}" must be ${expected}.`);
}
