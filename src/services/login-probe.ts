import { timingSafeEqual } from 'node:crypto';
import ssh2, { type ParsedKey } from 'ssh2';
import { AppError } from '../domain/errors.ts';
import { generateKeyPair } from '../domain/ssh-key-pair.ts';
import type { SshPublicKey } from '../domain/ssh-public-key.ts';
import { type Endpoint, LOGIN_USER } from '../engines/engine.ts';

const probeTimeoutMs = 5000;

/**
 * Asks sshd whether it would let this public key log in: the query without a signature of RFC 4252 section 7,
 * answered by SSH_MSG_USERAUTH_PK_OK. No private key is needed. A random key is asked first: a server that
 * accepts that one too accepts anything, and proves nothing. Throws `login_refused`, or `unavailable` when
 * sshd does not answer.
 */
export async function proveLogin(endpoint: Endpoint, key: SshPublicKey): Promise<void> {
  const control = generateKeyPair('control').publicKey;
  const accepted = await askServer(endpoint, [control, key]);
  if (accepted.has(control.base64)) {
    throw refused(
      'The sshd of the instance accepts any key, so this login proves nothing. Look at its sshd_config.',
    );
  }
  if (accepted.has(key.base64)) return;
  throw refused(
    `The sshd of the instance does not accept the key ${key.fingerprint}. Look at AuthorizedKeysFile, PubkeyAcceptedAlgorithms and AllowUsers in its sshd_config, and at the owner and mode of ~, ~/.ssh and authorized_keys.`,
  );
}

const refused = (message: string): AppError => new AppError('login_refused', message);

/** The base64 of every key that the server said it would accept. */
async function askServer(endpoint: Endpoint, keys: readonly SshPublicKey[]): Promise<Set<string>> {
  const agent = new AskingAgent(keys);
  const client = new ssh2.Client();
  try {
    await new Promise<void>((resolve, reject) => {
      client.once('ready', resolve);
      client.once('close', resolve);
      client.on('error', (error: Error & { level?: string }) => {
        if (error.level === 'agent') return;
        if (error.level === 'client-authentication') resolve();
        else reject(error);
      });
      client.connect({
        host: endpoint.ip,
        port: endpoint.port,
        username: LOGIN_USER,
        readyTimeout: probeTimeoutMs,
        agent,
        authHandler: ['agent'],
      });
    });
  } catch (error) {
    const message =
      'The sshd of the instance did not answer, so the login could not be proved. Try again in a minute.';
    throw new AppError('login_refused', message, { cause: error });
  } finally {
    client.destroy();
  }
  return agent.accepted;
}

/** Offers public keys, and notes which of them it is asked to sign with: the server accepted those. */
class AskingAgent extends ssh2.BaseAgent {
  readonly accepted = new Set<string>();
  readonly #identities: ParsedKey[];

  constructor(keys: readonly SshPublicKey[]) {
    super();
    this.#identities = keys.map(toIdentity);
  }

  override getIdentities(callback: (error: Error | undefined, keys?: ParsedKey[]) => void): void {
    callback(undefined, this.#identities);
  }

  override sign(key: ParsedKey, ...rest: unknown[]): void {
    this.accepted.add(key.getPublicSSH().toString('base64'));
    const callback = rest.find((argument) => typeof argument === 'function');
    if (callback) callback(new Error('this agent has no private key'));
  }
}

/**
 * ssh2 does not parse the security-key types (PROTOCOL.u2f), but only the name and the blob are sent: any
 * identity that it made serves to carry them.
 */
function toIdentity(key: SshPublicKey): ParsedKey {
  const carrier = ssh2.utils.parseKey(generateKeyPair('carrier').publicKey.line);
  if (carrier instanceof Error) throw carrier;
  return Object.create(carrier, {
    type: { value: key.type },
    comment: { value: '' },
    getPublicSSH: { value: () => key.blob },
    equals: { value: (other: ParsedKey) => sameBytes(other.getPublicSSH(), key.blob) },
  }) as ParsedKey;
}

const sameBytes = (a: Buffer, b: Buffer): boolean => a.length === b.length && timingSafeEqual(a, b);
