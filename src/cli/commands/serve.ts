import type { Command } from 'commander';
import { integerBetween } from '../options.ts';
import { loadService } from '../service.ts';
import type { Terminal } from '../terminal.ts';

interface ServeFlags {
  readonly data?: string;
  readonly host?: string;
  readonly port?: number;
}

const examples = `
Examples:
  $ berth serve
  $ berth serve --data /var/lib/berth --port 9000

The flags go before the settings BERTH_DATA, BERTH_HOST and BERTH_PORT. Ctrl-C stops the service.`;

export function addServeCommand(program: Command, terminal: Terminal): void {
  program
    .command('serve')
    .description('run the service in the foreground')
    .option('--data <dir>', 'folder of the database and the instances (default: .berth)')
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option(
      '--port <port>',
      'port to listen on; 0 takes any (default: 8080)',
      integerBetween(0, 65_535),
    )
    .addHelpText('after', examples)
    .action(async (flags: ServeFlags) => {
      const { runService } = await loadService();
      await runService({ ...terminal.env, ...overrides(flags) });
    });
}

/** The flags as the settings that they stand for; without those not given. */
export function overrides(flags: ServeFlags): Record<string, string> {
  return {
    ...(flags.data !== undefined && { BERTH_DATA: flags.data }),
    ...(flags.host !== undefined && { BERTH_HOST: flags.host }),
    ...(flags.port !== undefined && { BERTH_PORT: String(flags.port) }),
  };
}
