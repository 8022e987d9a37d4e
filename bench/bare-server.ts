/** The yardstick of the list: a bare node:http server that sends a file, byte for byte as the service sends it, and does nothing else. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const body = readFileSync(process.argv[2] ?? '');
const headers = JSON.parse(process.argv[3] ?? '{}') as Record<string, string>;
const server = createServer((_request, response) => {
  response.writeHead(200, headers);
  response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  process.on('SIGTERM', () => process.exit(0));
  process.stdout.write(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}\n`);
});
