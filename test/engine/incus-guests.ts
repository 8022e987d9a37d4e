/** Guests on a bridge, made by nothing but Incus's calls and the network card under test. */

import type { IncusClient } from '../../src/engines/incus/client.ts';
import type { Device } from '../../src/engines/incus/instance-config.ts';
import type { IncusPlace } from '../support/incus.ts';
import { eventually } from '../support/waiting.ts';

const OPERATION_TIMEOUT_MS = 120_000;

export interface TestGuest {
  readonly place: { readonly name: string; readonly project: string };
  readonly address: string;
  /** The exit status of a command that root runs in it. */
  run(...command: string[]): Promise<number>;
}

export async function makeGuest(
  { client, pool, project }: IncusPlace,
  name: string,
  nic: Device,
): Promise<TestGuest> {
  const place = { name, project };
  const body = {
    name,
    type: 'container',
    start: true,
    profiles: [],
    source: { type: 'image', alias: 'berth-base' },
    devices: { root: { type: 'disk', path: '/', pool }, eth0: nic },
  };
  await client.change('POST', '/1.0/instances', body, { project, timeoutMs: OPERATION_TIMEOUT_MS });
  const run = (...command: string[]) => runIn(client, place, command);
  const address = nic['ipv4.address'] ?? '';
  const hasAddress = `ip -4 -o address show dev eth0 | grep -q " ${address}/"`;
  await eventually('the address of the guest', OPERATION_TIMEOUT_MS, async () =>
    (await run('sh', '-c', hasAddress)) === 0 ? true : undefined,
  );
  return { place, address, run };
}

async function runIn(
  client: IncusClient,
  { name, project }: TestGuest['place'],
  command: readonly string[],
): Promise<number> {
  const body = { command, 'wait-for-websocket': false, 'record-output': false, interactive: false };
  const options = { project, timeoutMs: OPERATION_TIMEOUT_MS };
  const ended = await client.change('POST', `/1.0/instances/${name}/exec`, body, options);
  return (ended as { return: number }).return;
}

/** Exits with 0 when it can connect. */
const CONNECT = `
use IO::Socket::INET;
exit(IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 2) ? 0 : 1);
`;

export const canConnect = async (guest: TestGuest, address: string, port: number) =>
  (await guest.run('perl', '-e', CONNECT, address, String(port))) === 0;

/** Greets whoever connects, and echoes lines. */
const SERVER = `
use IO::Socket::INET;
$SIG{CHLD} = "IGNORE";
my $server = IO::Socket::INET->new(LocalPort => $ARGV[0], Listen => 16, ReuseAddr => 1) or exit 1;
exit 0 if fork;
while (my $client = $server->accept) {
  next if fork;
  $client->autoflush(1);
  print $client "hello from $ARGV[1]\\n";
  print $client $_ while <$client>;
  exit;
}
`;

/** Resolves when it listens. */
export async function greetIn(guest: TestGuest, port: number): Promise<void> {
  const status = await guest.run('setsid', 'perl', '-e', SERVER, String(port), guest.place.name);
  if (status !== 0) throw new Error(`The server in the guest ended with ${status}.`);
}
