import type { Command } from 'commander';
import { ApiError, type Client, UnreachableError } from '../../api/client.ts';
import type { KeyPlace } from '../../api/keys.ts';
import { connect } from '../context.ts';
import { CliError, exitCodes } from '../exit-codes.ts';
import { findFingerprint, keyArgument, keyArgumentHelp, presenceWord } from '../key-references.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printLine, printNote, printTable } from '../output.ts';
import { withProgress } from '../progress.ts';
import { confirm } from '../prompt.ts';
import type { Terminal } from '../terminal.ts';

interface RevokeFlags extends ClientFlags {
  readonly everywhere?: boolean;
  readonly yes?: boolean;
}

/** How it went on one instance. */
interface Result {
  readonly uuid: string;
  readonly identifier: number;
  readonly name: string;
  /** `absent`: there was nothing to take off. */
  readonly result: 'removed' | 'absent' | 'failed';
  readonly message?: string;
}

const whereExamples = `
Examples:
  $ berth key where SHA256:2pcKRYoVwhqkCxCU9fFTdo2wWRo5Jcd0VjZ8HyTIQ1c
  $ berth key where ~/.ssh/id_ed25519.pub

The files of the instances are read now, so keys that were added by hand are found too.`;

const revokeExamples = `
Examples:
  $ berth key revoke SHA256:2pcKRYoVwhqkCxCU9fFTdo2wWRo5Jcd0VjZ8HyTIQ1c --everywhere
  $ berth key revoke ./stolen.pub --everywhere --yes --json

It asks first; where there is no terminal, --yes is needed. It exits with 1 when the key may be left on any instance. Sessions that are open stay
open, and a snapshot keeps the keys that were in it.`;

export function addKeyPlaceCommands(key: Command, terminal: Terminal): void {
  withClientFlags(key.command('where'))
    .description('list the instances where a key is authorized')
    .argument(keyArgument, keyArgumentHelp)
    .addHelpText('after', whereExamples)
    .action((reference: string, flags: ClientFlags) => where(terminal, reference, flags));
  withClientFlags(key.command('revoke'))
    .description('take a key off every instance')
    .argument(keyArgument, keyArgumentHelp)
    .option('--everywhere', 'needed: off all instances of the organization')
    .option('--yes', 'do not ask; needed where there is no terminal to ask on')
    .addHelpText('after', revokeExamples)
    .action((reference: string, flags: RevokeFlags) => revoke(terminal, reference, flags));
}

async function where(terminal: Terminal, reference: string, flags: ClientFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const fingerprint = await findFingerprint(terminal, client, reference);
  const places = await client.listKeyInstances(fingerprint);
  if (flags.json) return printJson(terminal, places);
  if (places.length === 0) return printLine(terminal, `${fingerprint} is authorized nowhere.`);
  printPlaces(terminal, places);
}

function printPlaces(terminal: Terminal, places: readonly KeyPlace[]): void {
  const rows = places.map(({ identifier, name, status, presence, access, source, reason }) => [
    ...[
      String(identifier),
      name,
      status,
      presenceWord(presence),
      access ?? '',
      source ?? '',
      reason ?? '',
    ],
  ]);
  printTable(terminal, ['ID', 'NAME', 'STATUS', 'KEY', 'ACCESS', 'SOURCE', 'NOTE'], rows);
}

async function revoke(terminal: Terminal, reference: string, flags: RevokeFlags): Promise<void> {
  if (!flags.everywhere) {
    throw new CliError(
      'Say --everywhere to take the key off all instances. For one: berth key remove <instance> <fingerprint>',
      exitCodes.usage,
    );
  }
  if (!flags.yes && !terminal.stdin.isTTY) {
    throw new CliError(
      'There is no terminal to ask on, and nothing was changed. To go ahead without being asked, add --yes.',
      exitCodes.usage,
    );
  }
  const client = await connect(terminal, flags);
  const fingerprint = await findFingerprint(terminal, client, reference);
  const places = await client.listKeyInstances(fingerprint, { missing: true });
  if (places.length > 0) await ask(terminal, flags, fingerprint, places);
  const results = await withProgress(terminal, 'Taking the key off', () =>
    revokeAll(client, fingerprint, places),
  );
  report(terminal, flags, fingerprint, results);
}

async function ask(
  terminal: Terminal,
  flags: RevokeFlags,
  fingerprint: string,
  places: readonly KeyPlace[],
): Promise<void> {
  if (flags.yes) return;
  const numbers = places.map((place) => place.identifier).join(', ');
  printNote(terminal, `${fingerprint} comes off: ${numbers}.`);
  if (await confirm(terminal, 'Go on? [y/N] ')) return;
  throw new CliError('Nothing was changed.');
}

/** Off each, and then another look: what counts is that it is gone. */
async function revokeAll(
  client: Client,
  fingerprint: string,
  places: readonly KeyPlace[],
): Promise<Result[]> {
  if (places.length === 0) return [];
  const results: Result[] = [];
  for (const place of places) results.push(await revokeAt(client, fingerprint, place));
  const left = await client.listKeyInstances(fingerprint);
  const checked = results.map((result) =>
    afterLook(
      result,
      left.find((place) => place.uuid === result.uuid),
    ),
  );
  const known = new Set(results.map((result) => result.uuid));
  const late = left.filter((place) => !known.has(place.uuid) && isThere(place));
  return [...checked, ...late.map((place) => resultOf(place, 'failed', 'It was added meanwhile.'))];
}

async function revokeAt(client: Client, fingerprint: string, place: KeyPlace): Promise<Result> {
  try {
    await client.removeKey(place.uuid, fingerprint);
    return resultOf(place, 'removed');
  } catch (error) {
    const wasThere = place.presence !== 'missing';
    if (error instanceof ApiError && (error.status === 404 || !wasThere))
      return resultOf(place, 'absent');
    if (error instanceof ApiError || error instanceof UnreachableError)
      return resultOf(place, 'failed', error.message);
    throw error;
  }
}

function afterLook(result: Result, place: KeyPlace | undefined): Result {
  if (result.result === 'failed' || !place || !isThere(place)) return result;
  const message =
    place.access === 'signer'
      ? 'A cert-authority line trusts what this key signs. Take that line out by hand.'
      : 'The key is there again, or another line of it. Try again.';
  return { ...result, result: 'failed', message };
}

const isThere = ({ presence }: KeyPlace): boolean =>
  presence === 'present' || presence === 'unknown';

const resultOf = (place: KeyPlace, result: Result['result'], message?: string): Result => ({
  uuid: place.uuid,
  identifier: place.identifier,
  name: place.name,
  result,
  ...(message !== undefined && { message }),
});

function report(
  terminal: Terminal,
  flags: RevokeFlags,
  fingerprint: string,
  results: readonly Result[],
): void {
  if (flags.json) printJson(terminal, { fingerprint, results });
  else if (results.length === 0) printLine(terminal, `${fingerprint} is authorized nowhere.`);
  else
    printTable(
      terminal,
      ['ID', 'NAME', 'RESULT', 'NOTE'],
      results.map(({ identifier, name, result, message }) => [
        ...[String(identifier), name, result, message ?? ''],
      ]),
    );
  const failed = results.filter(({ result }) => result === 'failed').length;
  if (failed === 0) return;
  throw new CliError(
    `The key may still log in on ${failed} of ${results.length} instances. Mend what the notes say, and run this again.`,
  );
}
