/** Servers inside an instance, in nothing but the perl that every Debian has. */

import { get } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { type Login, sshWell } from './ssh.ts';

/** Answers every request with its second argument, closing the connection; `hold` keeps it open instead. */
const SERVER = `
use IO::Socket::INET;
my ($address, $port, $body, $hold) = @ARGV;
$SIG{CHLD} = "IGNORE";
my $server = IO::Socket::INET->new(LocalAddr => $address, LocalPort => $port, Listen => 128, ReuseAddr => 1)
  or die "cannot listen: $!";
open(my $ready, ">", "/tmp/serving-$port") or die; close $ready;
while (my $client = $server->accept) {
  next if fork;
  while (<$client>) { last if /^\\r?\\n$/ }
  print $client "HTTP/1.0 200 OK\\r\\nConnection: close\\r\\n\\r\\n$body";
  $client->flush;
  sleep 600 if $hold;
  exit;
}
`;

export interface GuestServer {
  /** What it answers. */
  readonly body: string;
  /** Where it listens: the address the instance is told of or else all of its own, unless given. */
  readonly address?: string;
  readonly hold?: boolean;
}

/** Starts an HTTP server in an instance; resolves when it listens. */
export async function serveInGuest(
  login: Login,
  port: number,
  { body, address = '$BERTH_ADDRESS', hold = false }: GuestServer,
): Promise<void> {
  const ready = `/tmp/serving-${port}`;
  const words = `"${address}" ${port} "${body}" ${hold ? 1 : ''}`;
  await sshWell(login, 'cat > /tmp/server.pl', { input: SERVER });
  await sshWell(
    login,
    `: "\${BERTH_ADDRESS:=0.0.0.0}"; rm -f ${ready}; setsid nohup perl /tmp/server.pl ${words} > /tmp/server-${port}.log 2>&1 < /dev/null &
     for try in $(seq 500); do test -e ${ready} && exit 0; sleep 0.02; done; cat /tmp/server-${port}.log >&2; exit 1`,
  );
}

/** The body of what answers there, or the code of the error. */
export function fetchText(host: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const call = get({ host, port, path: '/', agent: false, timeout: 10_000 }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        text += chunk;
      });
      response.once('end', () => resolve(text));
      response.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
    });
    call.once('timeout', () => call.destroy(Object.assign(new Error('late'), { code: 'LATE' })));
    call.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  });
}

/** Opens a connection, asks, and resolves when the first bytes of the answer are there. */
export async function openRequest(host: string, port: number): Promise<Socket> {
  const socket = connect({ host, port });
  socket.on('error', () => undefined);
  socket.write('GET / HTTP/1.0\r\n\r\n');
  await new Promise<void>((resolve, reject) => {
    socket.once('data', () => resolve());
    socket.once('close', () => reject(new Error('closed before it was answered')));
  });
  return socket;
}

/** Something else on this host that has the port. */
export function occupy(port: number, host = '127.0.0.1'): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', reject);
    server.listen({ host, port, exclusive: true }, () => resolve(server));
  });
}

export const vacate = (server: Server): Promise<void> =>
  new Promise((resolve) => server.close(() => resolve()));
