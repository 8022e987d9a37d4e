import type { Command } from 'commander';
import type { Client } from '../../api/client.ts';
import type { BookKey } from '../../api/keys.ts';
import { connect } from '../context.ts';
import { CliError, exitCodes } from '../exit-codes.ts';
import { readPublicKey } from '../input.ts';
import { findNamed } from '../key-references.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printLine, printTable, readableTime } from '../output.ts';
import type { Terminal } from '../terminal.ts';

const examples = `
Examples:
  $ berth key book add laptop ~/.ssh/id_ed25519.pub
  $ berth key book list
  $ berth key book remove laptop

The address book keeps public keys under names. Nothing lets them log in by itself: for that, berth key add.`;

export function addKeyBookCommands(key: Command, terminal: Terminal): void {
  const book = key
    .command('book')
    .description("the organization's address book of public keys")
    .addHelpText('after', examples);
  withClientFlags(book.command('add'))
    .description('put a public key into the address book')
    .argument('<name>', 'what to call it')
    .argument('<file>', 'its .pub file; - reads standard input')
    .addHelpText('after', '\nExample:\n  $ berth key book add laptop ~/.ssh/id_ed25519.pub')
    .action((name: string, file: string, flags: ClientFlags) => add(terminal, name, file, flags));
  withClientFlags(book.command('list'))
    .description('list the address book')
    .addHelpText('after', '\nExample:\n  $ berth key book list')
    .action((flags: ClientFlags) => list(terminal, flags));
  withClientFlags(book.command('remove'))
    .description('take a key out of the address book; where it logs in it still does')
    .argument('<entry>', 'its name, fingerprint or UUID')
    .addHelpText('after', '\nExample:\n  $ berth key book remove laptop')
    .action((reference: string, flags: ClientFlags) => remove(terminal, reference, flags));
}

async function add(
  terminal: Terminal,
  name: string,
  file: string,
  flags: ClientFlags,
): Promise<void> {
  const client = await connect(terminal, flags);
  const publicKey = await readPublicKey(terminal, file);
  const { key, message } = await client.addBookKey({ name, public_key: publicKey });
  if (flags.json) printJson(terminal, key);
  else printLine(terminal, message);
}

async function list(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const keys = await (await connect(terminal, flags)).listBookKeys();
  if (flags.json) return printJson(terminal, keys);
  if (keys.length === 0) {
    return printLine(terminal, 'No keys. Put one in with: berth key book add <name> <file>');
  }
  printTable(terminal, ['NAME', 'TYPE', 'FINGERPRINT', 'CREATED', 'ID'], keys.map(rowOf));
}

const rowOf = (key: BookKey): string[] => [
  key.name,
  key.key_type,
  key.fingerprint,
  readableTime(key.created_at),
  key.id,
];

async function remove(terminal: Terminal, reference: string, flags: ClientFlags): Promise<void> {
  const client = await connect(terminal, flags);
  const { id, name } = await findEntry(client, reference);
  await client.deleteBookKey(id);
  // The service answers with nothing at all, which is not JSON.
  if (flags.json) printJson(terminal, {});
  else
    printLine(terminal, `Took "${name}" out of the address book. Where it logs in it still does.`);
}

/** By UUID or fingerprint, else by name, which several may have. */
async function findEntry(client: Client, reference: string): Promise<BookKey> {
  const keys = await client.listBookKeys();
  const exact = keys.find(
    ({ id, fingerprint }) => id === reference.toLowerCase() || fingerprint === reference,
  );
  if (exact) return exact;
  const named = findNamed(keys, reference);
  if (named) return named;
  throw new CliError(
    `The address book has no "${reference}". See them all with: berth key book list`,
    exitCodes.notFound,
  );
}
