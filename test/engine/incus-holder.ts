/** Opens a private Incus with one instance in it, says where it is, and waits: for the test that kills it. */

import { once } from 'node:events';
import { openPrivateIncus } from '../support/incus-host.ts';

const { environment } = await openPrivateIncus(() => {});
Object.assign(process.env, environment);
const { openIncusPlace } = await import('../support/incus.ts');
const { client, project, network, pool, address } = await openIncusPlace();
const instance = {
  name: 'held',
  source: { type: 'image', alias: 'berth-base' },
  profiles: [],
  start: true,
  devices: {
    root: { type: 'disk', path: '/', pool, size: '1GiB' },
    eth0: { type: 'nic', network, name: 'eth0', 'security.ipv4_filtering': 'true' },
  },
};
await client.change('POST', '/1.0/instances', instance, { project, timeoutMs: 60_000 });
await client.change('POST', `/1.0/networks/${network}/forwards`, { listen_address: address });
process.stdout.write(`${JSON.stringify({ url: environment.BERTH_TEST_INCUS_URL, network })}\n`);
await once(process.stdin.resume(), 'close');
