import type { Command } from 'commander';
import { readLogin, removeLogin } from '../config-file.ts';
import { sameUrl } from '../context.ts';
import { CliError } from '../exit-codes.ts';
import { type ClientFlags, withClientFlags } from '../options.ts';
import { printJson, printLine, printNote } from '../output.ts';
import type { Terminal } from '../terminal.ts';

const examples = `
Examples:
  $ berth logout
  $ berth logout --url http://127.0.0.1:8080     only if the saved token is for this service

The token itself stays valid: it is ended by DELETE /v1/token/delete.`;

export function addLogoutCommand(program: Command, terminal: Terminal): void {
  withClientFlags(program.command('logout'))
    .description('delete the token that login saved')
    .addHelpText('after', examples)
    .action((flags: ClientFlags) => logout(terminal, flags));
}

async function logout(terminal: Terminal, flags: ClientFlags): Promise<void> {
  const { env } = terminal;
  const saved = await readLogin(env);
  const url = flags.url ?? (env.BERTH_URL || saved?.url);
  if (saved && url !== undefined && !sameUrl(saved.url, url)) {
    throw new CliError(
      `The saved token is for ${saved.url} and not for ${url}. Delete it with: berth logout --url ${saved.url}`,
    );
  }
  const path = saved && (await removeLogin(env));
  if (flags.json) printJson(terminal, {});
  else if (path === undefined) printLine(terminal, 'No token is saved.');
  else printLine(terminal, `Logged out of ${url}: the token was deleted from ${path}.`);
  if (env.BERTH_TOKEN) {
    printNote(
      terminal,
      'Warning: BERTH_TOKEN is set, and the commands use it. End that with: unset BERTH_TOKEN',
    );
  }
}
