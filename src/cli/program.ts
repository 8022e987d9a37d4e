import { type AddHelpTextContext, Command } from 'commander';
import packageJson from '../../package.json' with { type: 'json' };
import { addAdminCommands } from './commands/admin.ts';
import { addCatalogCommands } from './commands/catalog.ts';
import { addInstanceCommands } from './commands/instance.ts';
import { addKeyCommands } from './commands/key.ts';
import { addLoginCommand } from './commands/login.ts';
import { addLogoutCommand } from './commands/logout.ts';
import { addServeCommand } from './commands/serve.ts';
import { addSnapshotCommands } from './commands/snapshot.ts';
import { addSshCommand } from './commands/ssh.ts';
import { addTokenCommands } from './commands/token.ts';
import type { Terminal } from './terminal.ts';

const about = `
Examples:
  $ berth login --url http://127.0.0.1:8080
  $ berth instance create
  $ berth ssh 0
  $ berth snapshot create 0 before-upgrade

Environment:
  BERTH_URL, BERTH_TOKEN    the service and the token for it; they go before what berth login saved
  BERTH_CA                  file of the certificates (PEM) to trust there, beside those of this machine

Exit codes:
  0  it was done
  1  it failed, or the service refused it (a bad value, a taken name, a wrong state)
  2  the command line or a setting is wrong; nothing was sent
  3  not logged in, or not allowed
  4  there is no such instance, key, snapshot or organization
  5  the service does not answer
  berth ssh exits with the status of ssh

<instance> is always a number, a UUID or a name.`;

/** The whole command line. Usage errors are thrown as `CommanderError`, after commander has shown them. */
export function buildProgram(terminal: Terminal): Command {
  const program = new Command('berth')
    .description('Compute instances and snapshots on machines you own.')
    .version(packageJson.version)
    .exitOverride()
    .showHelpAfterError('Add --help to see how it is used.')
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
    })
    .addHelpText('beforeAll', refuseUnknownCommand)
    .addHelpText('after', about);
  addServeCommand(program, terminal);
  addAdminCommands(program, terminal);
  addLoginCommand(program, terminal);
  addLogoutCommand(program, terminal);
  addInstanceCommands(program, terminal);
  addKeyCommands(program, terminal);
  addSshCommand(program, terminal);
  addSnapshotCommands(program, terminal);
  addTokenCommands(program, terminal);
  addCatalogCommands(program, terminal);
  return program;
}

/** Help that was asked for a command that is not there is a usage error, and not the help of another one. */
function refuseUnknownCommand({ command, error }: AddHelpTextContext): string {
  const words = command.args[0] === 'help' ? command.args.slice(1) : command.args;
  const name = words[0];
  const names = command.commands.map((known) => known.name());
  const isUnknown = name !== undefined && !name.startsWith('-') && !names.includes(name);
  if (isUnknown && names.length > 0 && !error) {
    command.error(`error: unknown command '${name}'`, { code: 'commander.unknownCommand' });
  }
  return '';
}
