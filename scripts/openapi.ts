/** `npm run openapi`: writes openapi.json, the document that a service of this source answers at /openapi.json. */

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '../src/config.ts';
import { startService } from '../src/main.ts';

export const openApiFile = join(import.meta.dirname, '..', 'openapi.json');
export const howToRegenerate = 'Regenerate it with: npm run openapi';

/** The text of the file, asked of a service that is started for it with every setting at its default. */
export async function openApiText(): Promise<string> {
  const dataDir = mkdtempSync(join(tmpdir(), 'berth-openapi-'));
  chmodSync(dataDir, 0o711);
  const settings = { BERTH_DATA: dataDir, BERTH_PORT: '0', BERTH_LOG_LEVEL: 'silent' };
  try {
    const service = await startService(loadConfig(settings));
    try {
      const answer = await fetch(`${service.url}/openapi.json`);
      return `${JSON.stringify(await answer.json(), null, 2)}\n`;
    } finally {
      await service.stop();
    }
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  writeFileSync(openApiFile, await openApiText());
  process.stdout.write('openapi.json is written.\n');
  process.exit(0);
}
