import { resolve } from 'node:path';
import type { Command } from 'commander';
import { type SavedLogin, saveLogin } from '../config-file.ts';
import { checkUrl, clientFor, findEndpoint, sameUrl } from '../context.ts';
import { CliError, exitCodes } from '../exit-codes.ts';
import { readAll } from '../input.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printLine, printNote } from '../output.ts';
import { promptHidden } from '../prompt.ts';
import type { Terminal } from '../terminal.ts';
import { trustCertificates } from '../trust.ts';

interface LoginFlags extends ClientFlags {
  readonly tokenStdin?: boolean;
  readonly ca?: string;
}

const examples = `
Examples:
  $ berth login --url http://127.0.0.1:8080                  asks for the token
  $ berth login --url https://berth.example --token-stdin < token.txt
  $ berth login --url https://localhost:8080 --ca .berth/tls-cert.pem

A token in BERTH_TOKEN is taken without asking. A token is never an argument, as everybody on this
machine can read those. It is saved in ~/.config/berth/config.json, readable by you alone.`;

export function addLoginCommand(program: Command, terminal: Terminal): void {
  withClientFlags(program.command('login'))
    .description('check a token and keep it for the other commands')
    .option('--token-stdin', 'read the token from standard input')
    .option(
      '--ca <file>',
      'certificates to trust there (PEM), also by the other commands; or BERTH_CA',
    )
    .addHelpText('after', examples)
    .action((flags: LoginFlags) => login(terminal, flags));
}

async function login(terminal: Terminal, flags: LoginFlags): Promise<void> {
  const endpoint = await findEndpoint(terminal, flags);
  const { url } = endpoint;
  checkUrl(url);
  const ca = flags.ca ?? endpoint.ca;
  if (ca !== undefined) trustCertificates(ca);
  const token = (await readToken(terminal, flags, url)).trim();
  if (token === '') throw new CliError('The token is empty.', exitCodes.usage);
  const account = await clientFor(url, token).validateToken();
  warnOfPlainHttp(terminal, url);
  const path = await saveLogin(terminal.env, { url, token, ...(ca && { ca: resolve(ca) }) });
  warnOfEnvironment(terminal, { url, token });
  if (flags.json) printJson(terminal, account);
  else {
    const who = `${account.email} (${account.org_name})`;
    printLine(terminal, `Logged in to ${url} as ${who}. The token is kept in ${path}.`);
  }
}

async function readToken(terminal: Terminal, flags: LoginFlags, url: string): Promise<string> {
  if (flags.tokenStdin) return readAll(terminal.stdin);
  if (terminal.env.BERTH_TOKEN) return terminal.env.BERTH_TOKEN;
  if (terminal.stdin.isTTY) return promptHidden(terminal, `Token for ${url}: `);
  throw new CliError(
    'There is no terminal to ask for the token: give it with --token-stdin or in BERTH_TOKEN.',
    exitCodes.usage,
  );
}

/** What is set in the environment goes before what was just saved: the next command would surprise. */
function warnOfEnvironment(terminal: Terminal, { url, token }: SavedLogin): void {
  const { BERTH_URL, BERTH_TOKEN } = terminal.env;
  const others = [
    ...(BERTH_URL && !sameUrl(BERTH_URL, url) ? ['BERTH_URL'] : []),
    ...(BERTH_TOKEN && BERTH_TOKEN !== token ? ['BERTH_TOKEN'] : []),
  ];
  for (const name of others) {
    printNote(
      terminal,
      `Warning: ${name} is set to something else, which goes before this login. To use the login: unset ${name}`,
    );
  }
}

function warnOfPlainHttp(terminal: Terminal, url: string): void {
  const { protocol, hostname } = new URL(url);
  const isLocal = hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.');
  if (protocol === 'https:' || isLocal) return;
  printNote(terminal, `Warning: ${url} is not encrypted; others on the way can read the token.`);
}
