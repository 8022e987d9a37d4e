import type { Command } from 'commander';
import { connect } from '../context.ts';
import {
  type ClientFlags,
  parseScopeList,
  parseTokenLifetimeSeconds,
  withClientFlags,
} from '../options.ts';
import { printJson, printLine } from '../output.ts';
import type { Terminal } from '../terminal.ts';
import { printTokens } from '../tokens.ts';

interface CreateFlags extends ClientFlags {
  readonly scopes?: string[];
  readonly expiresIn?: number;
}

const examples = `
Examples:
  $ berth token create ci --scopes instances:read,instances:write --expires-in 30d
  $ berth token list
  $ berth token delete ci`;

export function addTokenCommands(program: Command, terminal: Terminal): void {
  const token = program
    .command('token')
    .description('tokens for programs and machines of yours')
    .addHelpText('after', examples);
  withClientFlags(token.command('create'))
    .description('make a token and print it, this once; it never has more than the one in use')
    .argument('<name>', 'what to call it')
    .option(
      '--scopes <list>',
      'what it may do, separated by commas (default: the same as the one in use)',
      parseScopeList,
    )
    .option(
      '--expires-in <time>',
      'end it after 15m, 2h or 30d (default: with the one in use)',
      parseTokenLifetimeSeconds,
    )
    .addHelpText('after', examples)
    .action((name: string, flags: CreateFlags) => create(terminal, name, flags));
  withClientFlags(token.command('list'))
    .description('list the tokens of the organization, without their secrets')
    .addHelpText('after', '\nExample:\n  $ berth token list --json')
    .action((flags: ClientFlags) => list(terminal, flags));
  withClientFlags(token.command('delete'))
    .description('end a token at once')
    .argument('<name>', 'what it is called')
    .addHelpText('after', '\nExample:\n  $ berth token delete ci')
    .action((name: string, flags: ClientFlags) => remove(terminal, name, flags));
}

async function create(terminal: Terminal, name: string, flags: CreateFlags): Promise<void> {
  const { scopes, expiresIn } = flags;
  const client = await connect(terminal, flags);
  const made = await client.createToken({
    name,
    ...(scopes !== undefined && { scopes }),
    ...(expiresIn !== undefined && { expires_in_seconds: expiresIn }),
  });
  if (flags.json) printJson(terminal, made);
  else printLine(terminal, made.token);
}

async function list(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const tokens = await (await connect(terminal, flags)).listTokens();
  if (flags.json) printJson(terminal, tokens);
  else printTokens(terminal, tokens, 'No tokens.');
}

async function remove(terminal: Terminal, name: string, flags: ClientFlags): Promise<void> {
  const answer = await (await connect(terminal, flags)).deleteToken({ name });
  if (flags.json) printJson(terminal, answer);
  else printLine(terminal, answer.message);
}
