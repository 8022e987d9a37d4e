import type { Command } from 'commander';
import type { Client } from '../../api/client.ts';
import type { AddKeyRequest, AddKeyResponse, InstanceKey } from '../../api/instance-keys.ts';
import type { Instance } from '../../api/instances.ts';
import { keysDirectory } from '../config-file.ts';
import { connect } from '../context.ts';
import { addGeneratedKey, savedKeyLines } from '../generated-keys.ts';
import { findTarget, lookIfAllowed, type Target } from '../instances.ts';
import { type KeyAnswer, type KeyAnswerFlags, printKeyAnswer } from '../key-answers.ts';
import { nameAddedKey, reserveKeyFile, reserveSavedKey } from '../key-files.ts';
import { presenceWord, readKeyOrEntry } from '../key-references.ts';
import {
  type ClientFlags,
  parseLifetimeSeconds,
  printOption,
  publicKeyOption,
  withClientFlags,
} from '../options.ts';
import { printJson, printLine, printTable, readableTime, shellWord } from '../output.ts';
import { withProgress } from '../progress.ts';
import type { Terminal } from '../terminal.ts';
import { addKeyBookCommands } from './key-book.ts';
import { addKeyPlaceCommands } from './key-places.ts';

interface ListFlags extends ClientFlags {
  readonly presence?: boolean;
}

interface AddFlags extends KeyAnswerFlags {
  readonly publicKey?: string;
  readonly verify?: boolean;
  readonly expiresIn?: number;
  readonly output?: string;
}

const addExamples = `
Examples:
  $ berth key add 0 --public-key ~/.ssh/id_ed25519.pub --verify
  $ berth key add 0 --output ./deploy-key --expires-in 30d
  $ ssh-add -L | head -n 1 | berth key add 0 --public-key -

Without --public-key a key pair is made; its private half is saved where "berth ssh" finds it, or in
the file of --output, which must not exist yet.`;

const examples = `
Examples:
  $ berth key add 0
  $ berth key list 0
  $ berth key where ~/.ssh/id_ed25519.pub
  $ berth key remove 0 SHA256:2pcKRYoVwhqkCxCU9fFTdo2wWRo5Jcd0VjZ8HyTIQ1c`;

export function addKeyCommands(program: Command, terminal: Terminal): void {
  const key = program
    .command('key')
    .description('SSH keys of an instance')
    .addHelpText('after', examples);
  withClientFlags(key.command('add <instance>'))
    .description('let a key log in')
    .addOption(publicKeyOption())
    .option('--verify', 'have the instance prove that it accepts the key')
    .option('--expires-in <time>', 'end it after 15m, 2h, 30d or seconds', parseLifetimeSeconds)
    .option('--output <file>', 'save the made private key in this new file')
    .addOption(printOption())
    .addHelpText('after', addExamples)
    .action((reference: string, flags: AddFlags) => add(terminal, reference, flags));
  withClientFlags(key.command('list <instance>'))
    .description('list the keys that may log in')
    .option('--presence', 'say of each whether it is recorded, and what is recorded but missing')
    .addHelpText('after', '\nExample:\n  $ berth key list 0')
    .action((reference: string, flags: ListFlags) => list(terminal, reference, flags));
  withClientFlags(key.command('remove <instance> <fingerprint>'))
    .description('take a key away')
    .addHelpText('after', `\nExample:\n${examples.split('\n').at(-1)}`)
    .action((reference: string, fingerprint: string, flags: ClientFlags) =>
      remove(terminal, reference, fingerprint, flags),
    );
  addKeyPlaceCommands(key, terminal);
  addKeyBookCommands(key, terminal);
}

async function add(terminal: Terminal, reference: string, flags: AddFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const publicKey = flags.publicKey && (await readKeyOrEntry(terminal, client, flags.publicKey));
  const target = await findTarget(client, reference);
  const request: AddKeyRequest = {
    ...(publicKey !== undefined && { public_key: publicKey }),
    ...(flags.verify && { verify: true }),
    ...(flags.expiresIn !== undefined && { expires_in_seconds: flags.expiresIn }),
  };
  const added = await withProgress(terminal, 'Adding the key', () =>
    send(terminal, client, target, request, flags),
  );
  printKeyAnswer(terminal, flags, added, await linesOf(client, target, added, flags));
}

async function send(
  terminal: Terminal,
  client: Client,
  { id, uuid }: Target,
  request: AddKeyRequest,
  flags: AddFlags,
): Promise<KeyAnswer<AddKeyResponse>> {
  if (request.public_key !== undefined || flags.print) {
    return { answer: await client.addKey(id, request) };
  }
  const endsAt = endOf(terminal, flags);
  const file = await (flags.output === undefined
    ? reserveSavedKey(keysDirectory(terminal.env), uuid ?? 'new', endsAt)
    : reserveKeyFile(flags.output));
  const answer = await addGeneratedKey(client, id, request, file);
  // Given by its number, the instance has a UUID for the name of the file only now.
  const isUnnamed = flags.output === undefined && uuid === undefined;
  const keyFile = isUnnamed ? await nameAddedKey(file.path, answer.uuid, endsAt) : file.path;
  return { answer, keyFile };
}

const endOf = (terminal: Terminal, { expiresIn }: AddFlags): number | undefined =>
  expiresIn === undefined ? undefined : Math.floor(terminal.now() / 1000) + expiresIn;

async function linesOf(
  client: Client,
  { label }: Target,
  { answer, keyFile }: KeyAnswer<AddKeyResponse>,
  { output }: AddFlags,
): Promise<[string, ...string[]]> {
  if (keyFile === undefined) return [answer.message];
  const lines = savedKeyLines(answer.key, keyFile, label);
  if (output === undefined) return [...lines, `Log in with: berth ssh ${label}`];
  const instance = await lookIfAllowed(client, answer.uuid);
  return instance ? [...lines, `Log in with: ${sshLine(instance, keyFile)}`] : lines;
}

/** To paste: it asks nothing at the first login, and a later instance on the same port is no alarm. */
function sshLine({ ip, port, uuid }: Instance, keyFile: string): string {
  const options = `-o IdentitiesOnly=yes -o HostKeyAlias=${uuid} -o StrictHostKeyChecking=accept-new`;
  return `ssh -i ${shellWord(keyFile)} ${options} -p ${port} ubuntu@${ip}`;
}

async function list(terminal: Terminal, reference: string, flags: ListFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const { id, label } = await findTarget(client, reference);
  if (flags.json && !flags.presence) return printJson(terminal, await client.listKeys(id));
  const all = await client.listKeysWithPresence(id);
  if (flags.json) return printJson(terminal, all);
  const keys = flags.presence ? all : all.filter(isInPlainList);
  if (keys.length === 0)
    return printLine(terminal, `No keys. Add one with: berth key add ${label}`);
  printKeys(terminal, keys, flags);
}

/** Presence was asked for only to learn when keys end. */
const isInPlainList = ({ presence, access }: InstanceKey): boolean =>
  presence !== 'missing' && access !== 'signer';

function printKeys(terminal: Terminal, keys: readonly InstanceKey[], flags: ListFlags): void {
  const more = flags.presence ? ['KEY', 'ACCESS'] : [];
  const anyEnds = keys.some((key) => key.expires_at !== undefined);
  const ends = anyEnds ? ['ENDS'] : [];
  const rows = keys.map((key) => [
    key.fingerprint,
    key.key_type,
    ...(flags.presence ? [presenceWord(key.presence), key.access ?? ''] : []),
    key.source,
    readableTime(key.added_at),
    ...(anyEnds ? [readableTime(key.expires_at)] : []),
    key.comment,
  ]);
  const headings = ['FINGERPRINT', 'TYPE', ...more, 'SOURCE', 'ADDED', ...ends, 'COMMENT'];
  printTable(terminal, headings, rows);
}

async function remove(
  terminal: Terminal,
  reference: string,
  fingerprint: string,
  flags: ClientFlags,
): Promise<void> {
  const client = await connect(terminal, flags);
  const { id, label } = await findTarget(client, reference);
  await client.removeKey(id, fingerprint);
  // The service answers with nothing at all, which is not JSON.
  if (flags.json) printJson(terminal, {});
  else
    printLine(
      terminal,
      `Removed the key from instance ${label}. Sessions that are open stay open.`,
    );
}
