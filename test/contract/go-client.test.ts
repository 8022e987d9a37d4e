/**
 * The main replay by a client that is really written in Go, with encoding/json, typed structs and
 * DisallowUnknownFields (go/main.go, the standard library alone). Where there is no Go it is skipped, and says so.
 */

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { openHouse } from '../support/house.ts';
import { makeKeyPair } from '../support/keys.ts';
import { isFree } from '../support/ports.ts';
import { runWell } from '../support/run.ts';

const version = spawnSync('go', ['version'], { encoding: 'utf8' });
const skip = version.status === 0 ? false : 'no go program on this machine';
if (skip !== false) console.error(`SKIPPING THE CLIENT IN GO: ${skip}`);

const folder = mkdtempSync(join(tmpdir(), 'berth-go-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const program = join(folder, 'client');
/** Nothing is fetched: the program needs the standard library alone. */
const offline = { GOTOOLCHAIN: 'local', GOPROXY: 'off', GOFLAGS: '-mod=mod', CGO_ENABLED: '0' };

async function build(): Promise<void> {
  const words = Object.entries(offline).map(([name, value]) => `${name}=${value}`);
  const source = join(import.meta.dirname, 'go');
  await runWell('env', [...words, 'go', 'build', '-C', source, '-o', program, '.'], {
    timeoutMs: 240_000,
  });
}

async function freePort(): Promise<number> {
  for (let port = 33_300; ; port += 1) if (await isFree(port)) return port;
}

function runClient(environment: Record<string, string>): Promise<{ code: number; said: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, { env: environment, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        said += text;
      });
    }
    child.once('error', reject);
    child.once('close', (code) => resolve({ code: code ?? -1, said }));
  });
}

test('a strictly typed client in Go replays the contract to its end', { skip }, async (context) => {
  await build();
  const house = await openHouse();
  context.after(() => house.dispose());
  const { publicKey } = await makeKeyPair(house.keyFolder, 'go@client');
  const outcome = await runClient({
    BERTH_URL: house.service.baseUrl,
    BERTH_TOKEN: house.api.token,
    BERTH_PUBLIC_KEY: publicKey,
    BERTH_HTTP_PORT: String(await freePort()),
  });
  assert.deepEqual(outcome, { code: 0, said: 'ok\n' });
});
