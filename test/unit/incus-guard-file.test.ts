/** How the rules of the bridge get to nft: some releases of it read nothing but files. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { applyGuard } from '../../src/engines/incus/setup.ts';

const rules = 'table inet berth-test\n';
const { PATH = '' } = process.env;
let folder: string;

/** In the place of nft: refuses what nft 1.0.9 refuses, and keeps what it read. */
const standIn = (folder: string) => `#!/bin/sh
test "$1" = -f || exit 1
file=$2
test "$file" != - || file=/dev/stdin
test -f "$file" || test -p "$file" || { echo "Error: Not a regular file: \\"$file\\"" >&2; exit 1; }
echo "$file" >'${folder}/where'
cat "$file" >'${folder}/read'
`;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'berth-nft-'));
  writeFileSync(join(folder, 'nft'), standIn(folder), { mode: 0o755 });
  process.env.PATH = `${folder}${delimiter}${PATH}`;
});
afterEach(() => {
  process.env.PATH = PATH;
  rmSync(folder, { recursive: true });
});

test('the rules come in a file, which is gone afterwards', async () => {
  await applyGuard(rules);
  assert.equal(readFileSync(join(folder, 'read'), 'utf8'), rules);
  const where = readFileSync(join(folder, 'where'), 'utf8').trim();
  assert.throws(() => readFileSync(where), /ENOENT/);
});

test('what nft complains about is said', async () => {
  writeFileSync(join(folder, 'nft'), '#!/bin/sh\necho "Error: no such family" >&2\nexit 1\n');
  await assert.rejects(applyGuard(rules), /no such family/);
});
