import { createServer, type Server } from 'node:net';

/** Blocks of ports below the range that Linux hands out by itself. */
const FIRST_PORT = 23_000;
const BLOCK_SIZE = 100;
const BLOCK_COUNT = 97;

export interface PortRange {
  readonly from: number;
  readonly to: number;
}

function listen(port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => resolve(server));
  });
}

/** Can this port be bound now? */
export async function isFree(port: number): Promise<boolean> {
  const server = await listen(port);
  if (server === undefined) return false;
  await new Promise((resolve) => server.close(resolve));
  return true;
}

async function allFree(range: PortRange): Promise<boolean> {
  for (let port = range.from; port <= range.to; port += 1) {
    if (!(await isFree(port))) return false;
  }
  return true;
}

/**
 * A range of free ports that no other test process takes: the first port of its block stays bound by
 * this process until it ends, which is the claim.
 */
export async function claimPorts(count: number): Promise<PortRange> {
  if (count >= BLOCK_SIZE) throw new Error(`At most ${BLOCK_SIZE - 1} ports at once.`);
  const start = Math.floor(Math.random() * BLOCK_COUNT);
  for (let step = 0; step < BLOCK_COUNT; step += 1) {
    const base = FIRST_PORT + ((start + step) % BLOCK_COUNT) * BLOCK_SIZE;
    const range = { from: base + 1, to: base + count };
    const claim = await listen(base);
    if (claim === undefined) continue;
    if (await allFree(range)) {
      claim.unref();
      return range;
    }
    await new Promise((resolve) => claim.close(resolve));
  }
  throw new Error('No free range of ports on this host.');
}
