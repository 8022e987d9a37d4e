/** The module of the kernel without which Incus starts no instance of ours. */
import { existsSync, writeFileSync } from 'node:fs';
import {
  bridgeFilterModule,
  bridgeFilterState,
  bridgeFilterSwitch,
} from '../src/engines/incus/bridge-filter.ts';
import { run } from './apt.ts';
import { writeSettings } from './settings-file.ts';

type Say = (line: string) => void;

const modulesFile = '/etc/modules-load.d/berth-incus.conf';

/** For as long as the machine runs. */
export function turnOnBridgeFilter(say: Say): void {
  if (bridgeFilterState() === 'missing') {
    say(`Loading the module ${bridgeFilterModule} of the kernel ...`);
    if (!run(['modprobe', bridgeFilterModule], say))
      say(
        'Note: without it no instance starts. As root of the machine itself: modprobe br_netfilter',
      );
  }
  if (bridgeFilterState() !== 'off') return;
  try {
    writeFileSync(bridgeFilterSwitch, '1');
  } catch {
    say(`Note: no instance starts until ${bridgeFilterSwitch} is 1, and it cannot be set here.`);
  }
}

/** For after the next boot, too; a kernel that has it built in needs no module. */
export function keepBridgeFilter(say: Say): void {
  if (!existsSync(`/sys/module/${bridgeFilterModule}/initstate`)) return;
  const text = `# Made by Berth: Incus filters the addresses of instances with it.\n${bridgeFilterModule}\n`;
  if (writeSettings(modulesFile, text))
    say(`The module ${bridgeFilterModule} is loaded at each boot: ${modulesFile}`);
}
