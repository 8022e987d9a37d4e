/** `authorized_keys` of an instance, read and written by its own guest. */

import { sameKeyPart } from './keys.ts';
import { type Login, sshWell } from './ssh.ts';

const PATH = '~/.ssh/authorized_keys';

/** The bytes of the file. */
export async function readKeyFile(login: Login): Promise<Buffer> {
  return Buffer.from(await sshWell(login, `base64 -w0 ${PATH}`), 'base64');
}

export async function writeKeyFile(login: Login, content: Buffer): Promise<void> {
  await sshWell(login, `cat > ${PATH}`, { input: content });
}

export async function keyFileLines(login: Login): Promise<string[]> {
  return (await readKeyFile(login)).toString('utf8').split('\n').slice(0, -1);
}

/** The lines that carry this key, whatever their options and comment. */
export async function linesWith(login: Login, publicKey: string): Promise<string[]> {
  const wanted = sameKeyPart(publicKey);
  return (await keyFileLines(login)).filter((line) => sameKeyPart(line) === wanted);
}
