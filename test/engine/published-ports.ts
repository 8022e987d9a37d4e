/** The part of the engine contract about `configure` and published ports. */

import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { MachineSpec } from '../../src/engines/engine.ts';
import { fetchText, occupy, openRequest, serveInGuest, vacate } from '../support/guest-server.ts';
import { claimPorts } from '../support/ports.ts';
import { type Bench, rejectsWith } from './engine-contract.ts';

export function describePublishedPorts(bench: Bench): void {
  const withPorts = (machine: MachineSpec, ...httpPorts: number[]): MachineSpec => ({
    ...machine,
    httpPorts,
  });
  const published = async ({ ref }: MachineSpec) =>
    (await bench.engine.inspect(ref))?.httpPorts ?? [];
  const ifAble = (name: string, work: (ports: number[]) => Promise<void>) =>
    it(name, async (test) => {
      if (!bench.engine.capabilities.publishesPorts) return test.skip('it publishes no ports here');
      const { from } = await claimPorts(3);
      await work([from, from + 1, from + 2]);
    });

  it('configures what runs and what is stopped, twice with the outcome of once', async () => {
    const { engine } = bench;
    const { machine } = await bench.run();
    const larger = { ...machine, cpuCores: 2, memoryGb: 2, diskSizeGb: 20 };
    for (let times = 0; times < 2; times += 1) await engine.configure(larger);
    assert.equal((await engine.inspect(machine.ref))?.state, 'running');
    await engine.stop(machine.ref);
    for (let times = 0; times < 2; times += 1) await engine.configure(machine);
    assert.deepEqual(await engine.inspect(machine.ref), { state: 'stopped' });
    await engine.delete(machine.ref);
    await rejectsWith('not_running', () => engine.configure(machine));
  });

  ifAble(
    'publishes a port of what runs, and takes it back with what goes through it',
    async (ports) => {
      const [one = 0, two = 0] = ports;
      const { machine, login } = await bench.run();
      const { host } = login;
      await serveInGuest(login, one, { body: 'inside', hold: true });
      await serveInGuest(login, two, { body: 'inside too' });
      assert.match(await fetchText(host, two), /^ECONN/);
      for (let times = 0; times < 2; times += 1)
        await bench.engine.configure(withPorts(machine, two, one));
      assert.deepEqual(await published(machine), [one, two]);
      assert.equal(await fetchText(host, two), 'inside too');
      const open = await openRequest(host, one);
      // Orderly or by a reset: `once` of node:events would make an error of that.
      const cut = new Promise((resolve) => open.once('close', resolve));
      await bench.engine.configure(withPorts(machine, two));
      await cut;
      assert.equal(await fetchText(host, one), 'ECONNREFUSED');
      assert.equal(await fetchText(host, two), 'inside too');
      await bench.engine.delete(machine.ref);
      assert.equal(await fetchText(host, two), 'ECONNREFUSED');
    },
  );

  ifAble('leaves open connections alone when other ports change', async ([one = 0, two = 0]) => {
    const { machine, login } = await bench.run();
    await serveInGuest(login, one, { body: 'inside', hold: true });
    await bench.engine.configure(withPorts(machine, one));
    const open = await openRequest(login.host, one);
    await bench.engine.configure(withPorts(machine, one, two));
    await bench.engine.configure(withPorts(machine, one));
    assert.equal(open.readyState, 'open');
    open.destroy();
    await bench.engine.delete(machine.ref);
  });

  ifAble(
    'closes the ports of what stops, and publishes them again at the start',
    async ([one = 0]) => {
      const machine = withPorts(await bench.create(), one);
      await bench.engine.configure(machine);
      const login = await bench.login(machine);
      await bench.engine.stop(machine.ref);
      await bench.engine.configure(machine);
      assert.equal(await fetchText(login.host, one), 'ECONNREFUSED');
      await bench.engine.start(machine);
      await serveInGuest(login, one, { body: 'inside' });
      assert.equal(await fetchText(login.host, one), 'inside');
      await bench.engine.stop(machine.ref);
      assert.equal(await fetchText(login.host, one), 'ECONNREFUSED');
      await serveInGuest(await bench.login(machine), one, { body: 'again' });
      assert.equal(await fetchText(login.host, one), 'again');
      await bench.engine.delete(machine.ref);
    },
  );

  ifAble(
    'names a port that is taken, and changes nothing',
    async ([one = 0, two = 0, three = 0]) => {
      const { machine, login } = await bench.run();
      await serveInGuest(login, one, { body: 'inside' });
      await bench.engine.configure(withPorts(machine, one));
      const stranger = await occupy(two, login.host);
      const error = await rejectsWith('port_taken', () =>
        bench.engine.configure(withPorts(machine, three, two)),
      );
      assert.match(error.message, new RegExp(`\\b${two}\\b`));
      assert.deepEqual(await published(machine), [one]);
      assert.equal(await fetchText(login.host, one), 'inside');
      assert.equal(await fetchText(login.host, three), 'ECONNREFUSED');
      await bench.engine.stop(machine.ref);
      await bench.engine.start(withPorts(machine, two, three));
      assert.deepEqual(
        await published(machine),
        [three],
        'it starts without the port that is taken',
      );
      await vacate(stranger);
      await bench.engine.configure(withPorts(machine, two, three));
      assert.deepEqual(await published(machine), [two, three]);
      await bench.engine.delete(machine.ref);
    },
  );

  ifAble(
    'publishes what listens on all addresses, or says what to do where the host shares them',
    async ([one = 0]) => {
      const { machine, login } = await bench.run();
      await serveInGuest(login, one, { body: 'everywhere', address: '0.0.0.0' });
      if (bench.engine.capabilities.ownNetwork) {
        await bench.engine.configure(withPorts(machine, one));
        assert.equal(await fetchText(login.host, one), 'everywhere');
        return bench.engine.delete(machine.ref);
      }
      const error = await rejectsWith('port_taken', () =>
        bench.engine.configure(withPorts(machine, one)),
      );
      assert.match(error.message, new RegExp(`\\b${one}\\b.*BERTH_ADDRESS`));
      await bench.engine.delete(machine.ref);
    },
  );

  ifAble('does not hold a visitor up when nobody listens inside', async ([one = 0]) => {
    const { machine, login } = await bench.run();
    await bench.engine.configure(withPorts(machine, one));
    assert.match(await fetchText(login.host, one), /^ECONN(?:RESET|REFUSED)$/);
    await bench.engine.delete(machine.ref);
  });
}
