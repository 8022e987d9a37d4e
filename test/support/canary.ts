/** A folder and a file of the host that anybody may write to: whoever is lured there leaves a trace. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const CONTENT = 'canary, without a final newline';

function describe(path: string): string {
  const { ino, mode, uid, gid, nlink, mtimeMs, ctimeMs } = lstatSync(path);
  return [ino, mode, uid, gid, nlink, mtimeMs, ctimeMs].join(' ');
}

export class Canary {
  readonly folder: string;
  readonly file: string;
  readonly pipe: string;
  private readonly inner: string;
  private readonly before: string;

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'berth-canary-'));
    this.file = join(this.folder, 'file');
    this.pipe = join(this.folder, 'pipe');
    this.inner = join(this.folder, 'ssh');
    writeFileSync(this.file, CONTENT);
    execFileSync('mkfifo', [this.pipe]);
    mkdirSync(this.inner);
    writeFileSync(join(this.inner, 'authorized_keys'), CONTENT);
    for (const path of [this.file, this.pipe, join(this.inner, 'authorized_keys')]) {
      chmodSync(path, 0o666);
    }
    for (const path of [this.inner, this.folder]) chmodSync(path, 0o777);
    this.before = this.state();
  }

  /** Stands for a `~/.ssh` of the host. */
  get sshFolder(): string {
    return this.inner;
  }

  private state(): string {
    const all = readdirSync(this.folder, { recursive: true, encoding: 'utf8' }).sort();
    const seen = all.map((name) => `${name} ${describe(join(this.folder, name))}`);
    const texts = [this.file, join(this.inner, 'authorized_keys')].map((path) =>
      readFileSync(path, 'utf8'),
    );
    return [describe(this.folder), ...seen, ...texts].join('\n');
  }

  assertUntouched(): void {
    assert.equal(this.state(), this.before, 'nothing outside the instance changed');
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
