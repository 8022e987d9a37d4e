/** The module of the kernel without which Incus starts no instance of ours. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import {
  bridgeFilterModule,
  bridgeFilterState,
  bridgeFilterSwitch,
} from '../src/engines/incus/bridge-filter.ts';
import { run } from './apt.ts';

type Say = (line: string) => void;

const modulesFolder = '/etc/modules-load.d';
const modulesFile = `${modulesFolder}/berth-incus.conf`;

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
  const isModule = existsSync(`/sys/module/${bridgeFilterModule}/initstate`);
  if (!isModule || !existsSync(modulesFolder)) return;
  const text = `# Made by Berth: Incus filters the addresses of instances with it.\n${bridgeFilterModule}\n`;
  if (existsSync(modulesFile) && readFileSync(modulesFile, 'utf8') === text) return;
  writeFileSync(modulesFile, text);
  say(`The module ${bridgeFilterModule} is loaded at each boot: ${modulesFile}`);
}
