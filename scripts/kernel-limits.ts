/**
 * Limits of the kernel that are meant for one system, where there are to be many: all containers' systemds share them,
 * and with the defaults the twelfth or so does not boot ("Too many open files"). Only ever raised.
 */
import { writeFileSync } from 'node:fs';
import { kernelLimits, limitPath, lowLimits } from '../src/engines/incus/kernel-limits.ts';
import { writeSettings } from './settings-file.ts';

const settingsFile = '/etc/sysctl.d/60-berth-incus.conf';

/** For as long as the machine runs. */
export function raiseKernelLimits(say: (line: string) => void): void {
  const low = lowLimits();
  if (low.length === 0) return;
  say(`Raising limits of the kernel that many instances share: ${low.join(', ')} ...`);
  try {
    for (const name of low) writeFileSync(limitPath(name), String(kernelLimits[name]));
  } catch {
    say('Note: they cannot be raised here; the twelfth instance or so may not start.');
  }
}

/** For after the next boot, too. */
export function keepKernelLimits(say: (line: string) => void): void {
  const lines = Object.entries(kernelLimits).map(([name, value]) => `${name} = ${value}`);
  const text = `# Made by Berth: containers share these, and the defaults are meant for one system.\n${lines.join('\n')}\n`;
  if (writeSettings(settingsFile, text))
    say(`The limits that all containers share stay raised after a reboot: ${settingsFile}`);
}
