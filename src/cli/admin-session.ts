/** What every command of `berth admin` shares: its flags, and the way to the data. */

import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { overrides } from './commands/serve.ts';
import { dataFolder } from './config-file.ts';
import { CliError } from './exit-codes.ts';
import { type Admin, openAdmin } from './service.ts';
import type { Terminal } from './terminal.ts';

export interface AdminFlags {
  readonly data?: string;
  readonly json?: boolean;
}

export function withAdminFlags(command: Command): Command {
  return command
    .option('--data <dir>', 'the data folder of the service (default: BERTH_DATA, else .berth)')
    .option('--json', 'print the answer as JSON');
}

/** Help that ends in examples, a line each, and where the commands work. */
export const adminExamples = (...lines: readonly string[]): string => `
Examples:
${lines.map((line) => `  $ ${line}`).join('\n')}

Works directly on the data folder (--data or BERTH_DATA), whether the service runs or not.`;

/** Opens the data, does the work, and closes it again however that ended. */
export async function withAdmin<T>(
  terminal: Terminal,
  flags: AdminFlags,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  await requireDataFolder(terminal, flags);
  return withNewAdmin(terminal, flags, work);
}

/** The same, but makes the data folder where there is none: for the first organization. */
export async function withNewAdmin<T>(
  terminal: Terminal,
  flags: AdminFlags,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  const admin = await openAdmin(settingsOf(terminal, flags));
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

/** Opening the data makes the folder; where there is none, a wrong one was named, or none at all. */
async function requireDataFolder(terminal: Terminal, flags: AdminFlags): Promise<void> {
  const settings = settingsOf(terminal, flags);
  const path = dataFolder(settings);
  // A database elsewhere needs no folder of this machine.
  if (settings.BERTH_DATABASE_URL || (await stat(path).catch(() => undefined))?.isDirectory()) {
    return;
  }
  throw new CliError(
    `There is no data folder ${path}. Name the one of the service with --data or BERTH_DATA, or make the first organization in it with: berth admin org create`,
  );
}

const settingsOf = (terminal: Terminal, { data }: AdminFlags) => ({
  ...terminal.env,
  ...overrides({ ...(data && { data }) }),
});
