import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** What `quickstart.env` in the data folder holds: shell lines, readable by the owner alone. */
export interface SavedState {
  readonly url: string;
  readonly token: string;
  /** Undefined: the one that there is without a setting. */
  readonly engine?: string | undefined;
  /** File of the certificate, when it is one that nobody else vouches for. */
  readonly ca?: string | undefined;
  readonly instance?: string | undefined;
  /** The `ssh` line to paste. */
  readonly login?: string | undefined;
}

const fileName = 'quickstart.env';

export function readSavedState(dataDir: string): SavedState | undefined {
  const path = join(dataDir, fileName);
  if (!existsSync(path)) return undefined;
  const values = new Map<string, string>();
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    const match = /^([A-Z_]+)=(.*)$/.exec(line);
    if (match) values.set(match[1] ?? '', (match[2] ?? '').replace(/^'(.*)'$/, '$1'));
  }
  const token = values.get('BERTH_TOKEN');
  const url = values.get('BERTH_URL');
  if (token === undefined || url === undefined) return undefined;
  return { url, token, instance: values.get('BERTH_INSTANCE'), login: values.get('BERTH_LOGIN') };
}

export function writeSavedState(dataDir: string, state: SavedState): void {
  const path = join(dataDir, fileName);
  const lines = [`BERTH_URL=${state.url}`, `BERTH_TOKEN=${state.token}`];
  // For `berth admin`, which works on the data itself.
  lines.push(`BERTH_DATA='${dataDir}'`);
  if (state.engine !== undefined) lines.push(`BERTH_ENGINE=${state.engine}`);
  if (state.ca !== undefined) lines.push(`BERTH_CA='${state.ca}'`);
  if (state.instance !== undefined) lines.push(`BERTH_INSTANCE=${state.instance}`);
  if (state.login !== undefined) lines.push(`BERTH_LOGIN='${state.login}'`);
  writeFileSync(path, `${lines.join('\n')}\n`, { mode: 0o600 });
  chmodSync(path, 0o600);
}
