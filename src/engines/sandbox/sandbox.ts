/**
 * The sandbox engine: instances on this very host, without a daemon and without root.
 *
 * An instance is a folder, which is its disk, and one real OpenSSH server that runs in a bubblewrap sandbox
 * of its own. Whoever logs in is `ubuntu`, sees the host's /usr read-only and nothing else of the host, and
 * shares one unprivileged user of the host with all other instances, from which namespaces keep it apart.
 * CPU and memory are limited where the host permits it (cgroups.ts), the disk size where the file system has quotas
 * (disk-quotas.ts). Its ports are published by the service itself (published-ports.ts).
 *
 * Three ideas carry the rest:
 *
 * - What exists is what stands under its own name on the file system (layout.ts), what runs is what the
 *   process table shows (launch.ts). Nothing is recorded twice, so nothing can disagree after a crash: the
 *   service may be killed at any point and adopts what it finds.
 * - The guest is hostile. It owns its disk, so nothing of ours follows a path in there
 *   (authorized-keys-file.ts) and no tool walks it with more rights than the guest has (disk.ts). It owns its
 *   processes, so none of them is believed (launch.ts). What sshd must be able to rely on is mounted over
 *   the disk from a folder that the guest cannot change (system-files.ts).
 * - A host may permit less than this needs. The engine finds out once (host.ts), says what is missing, and
 *   does what can be done safely: without namespaces it accepts keys and refuses shells.
 *
 * Slow work on one instance runs one after the other, and so do changes of its keys. Where both are needed,
 * the instance is locked first.
 */

import { join } from 'node:path';
import type { AddKeyOutcome, AuthorizedKey, KeyMatch } from '../../domain/authorized-keys.ts';
import { KeyedLock } from '../../domain/keyed-lock.ts';
import {
  type DiskSource,
  type Endpoint,
  type Engine,
  type EngineCapabilities,
  EngineError,
  type EngineHealth,
  type EngineInventory,
  type EngineRef,
  type InstanceFacts,
  type MachineSpec,
} from '../engine.ts';
import { addKeyTo, readKeyFile, removeKeyFrom } from './authorized-keys-file.ts';
import type { Limits } from './cgroups.ts';
import { removeTree, syncDisk } from './disk.ts';
import { copyAtRest } from './disk-at-rest.ts';
import type { DiskQuotas } from './disk-quotas.ts';
import { failingAs } from './failures.ts';
import { capabilitiesOf, type Host } from './host.ts';
import { end, findRunning, firstProcessOf, type Running } from './launch.ts';
import { entryPath, isThere, type Layout, listEntries, takeAway } from './layout.ts';
import type { SandboxOptions } from './options.ts';
import { openParts, type Parts } from './parts.ts';
import { continueAll } from './pause.ts';
import { isAlive, pidNamespaceOf } from './processes.ts';
import { Provisioner } from './provisioner.ts';
import { dialerTo, PublishedPorts } from './published-ports.ts';
import { bringUp, startSshd } from './starting.ts';
import { createIdentity } from './system-files.ts';

export type { SandboxOptions } from './options.ts';

/** Looks at the host, clears away what a crash left half-done, and adopts the instances that run. */
export async function createSandboxEngine(options: SandboxOptions): Promise<SandboxEngine> {
  const engine = new SandboxEngine(options, await openParts(options));
  await engine.recover();
  return engine;
}

export class SandboxEngine implements Engine {
  readonly name = 'sandbox';
  readonly capabilities: EngineCapabilities;
  private readonly options: SandboxOptions;
  private readonly host: Host;
  private readonly layout: Layout;
  private readonly limits: Limits;
  private readonly quotas: DiskQuotas;
  private readonly provisioner: Provisioner;
  private readonly ports: PublishedPorts;
  private readonly running = new Map<EngineRef, Running>();
  private readonly work = new KeyedLock();
  private readonly keyChanges = new KeyedLock();

  constructor(options: SandboxOptions, { host, layout, limits, quotas }: Parts) {
    this.options = options;
    this.host = host;
    this.layout = layout;
    this.limits = limits;
    this.quotas = quotas;
    this.provisioner = new Provisioner(layout, host, quotas, options.log);
    this.ports = new PublishedPorts(options.portsAddress, options.log, (running) =>
      dialerTo(running, host),
    );
    this.capabilities = capabilitiesOf(host, options, limits, quotas);
  }

  /** What a killed service left: half-built things, running instances, and paused ones if the guard died too. */
  async recover(): Promise<void> {
    for (const name of await listEntries(this.layout.work))
      await this.provisioner.discard(join(this.layout.work, name));
    for (const running of findRunning(this.layout.instances, this.host)) {
      if (await isThere(entryPath(this.layout.instances, running.ref))) await this.adopt(running);
      else await end(running);
    }
    await this.limits.removeAllBut(new Set(this.running.keys()));
  }

  private async adopt(running: Running): Promise<void> {
    this.running.set(running.ref, running);
    const first = firstProcessOf(running);
    const namespace = first && pidNamespaceOf(first.pid);
    if (namespace !== undefined && !running.unconfined) continueAll(namespace);
    await this.limits.takeIn(running);
    this.options.log('info', 'adopted a running instance', { ref: running.ref });
  }

  async health(): Promise<EngineHealth> {
    const { tools, notices } = this.host;
    const own = this.layout.notice === undefined ? [] : [this.layout.notice];
    const ok = tools.sshd !== undefined && tools.sshKeygen !== undefined;
    return { ok, notices: [...notices, ...this.limits.notices, ...this.quotas.notices, ...own] };
  }

  async inventory(): Promise<EngineInventory> {
    return failingAs('The instances of this host could not be listed.', async () => {
      const refs = await listEntries(this.layout.instances);
      return {
        instances: new Map(refs.map((ref) => [ref, this.factsOf(ref)])),
        snapshots: new Set(await listEntries(this.layout.snapshots)),
      };
    });
  }

  async inspect(ref: EngineRef): Promise<InstanceFacts | undefined> {
    return (await isThere(this.pathOf(ref))) ? this.factsOf(ref) : undefined;
  }

  private factsOf(ref: EngineRef): InstanceFacts {
    const running = this.running.get(ref);
    if (running === undefined || !isAlive(running.launcher)) return { state: 'stopped' };
    const httpPorts = this.ports.of(ref);
    const { endpoint } = running;
    return { state: 'running', endpoint, ...(httpPorts.length > 0 && { httpPorts }) };
  }

  async create(
    machine: MachineSpec,
    source: DiskSource,
    keys: readonly AuthorizedKey[],
  ): Promise<void> {
    const place = this.pathOf(machine.ref);
    await this.locked(machine.ref, 'The instance could not be created.', async () => {
      if (await isThere(place)) return;
      await this.provisioner.build(place, async (folder) => {
        const disk = await this.provisioner.addDisk(folder, source, machine.diskSizeGb);
        await createIdentity(folder, this.host);
        await this.provisioner.addFirstKeys(disk, source, keys, () => this.now());
        await syncDisk(disk, this.host);
      });
    });
  }

  async start(machine: MachineSpec): Promise<Endpoint> {
    const instance = this.pathOf(machine.ref);
    const endpoint = { ip: this.options.listenAddress, port: machine.sshPort };
    const request = { ref: machine.ref, hostname: machine.hostname, instance, endpoint };
    return this.locked(machine.ref, 'The instance could not be started.', async () => {
      await this.requireInstance(machine.ref);
      await this.quotas.keep(join(instance, 'disk'), machine.diskSizeGb);
      const running =
        this.findAlive(machine.ref) ?? (await startSshd(request, this.host, this.options));
      this.running.set(machine.ref, running);
      await bringUp(running, request, this.host, { machine, limits: this.limits });
      await this.ports.setWhatIsFree(machine.ref, running, this.portsFor(machine));
      return running.endpoint;
    });
  }

  async configure(machine: MachineSpec): Promise<void> {
    const { ref } = machine;
    await this.locked(ref, 'The instance could not be changed.', async () => {
      await this.requireInstance(ref);
      const running = this.running.get(ref);
      if (running === undefined || !isAlive(running.launcher)) await this.ports.withdraw(ref);
      else await this.configureRunning(running, machine);
      await this.quotas.limit(join(this.pathOf(ref), 'disk'), machine.diskSizeGb);
    });
  }

  private async configureRunning(running: Running, machine: MachineSpec): Promise<void> {
    const takeBack = await this.limits.change(running, machine);
    try {
      await this.ports.set(machine.ref, running, this.portsFor(machine));
    } catch (error) {
      await takeBack();
      throw error;
    }
  }

  private portsFor({ httpPorts }: MachineSpec): readonly number[] {
    return this.capabilities.publishesPorts ? httpPorts : [];
  }

  /** Looked up in the process table itself: a second sshd on one disk must not come to be. */
  private findAlive(ref: EngineRef): Running | undefined {
    const found = findRunning(this.layout.instances, this.host).find((entry) => entry.ref === ref);
    if (found === undefined) this.running.delete(ref);
    else this.running.set(ref, found);
    return found;
  }

  async stop(ref: EngineRef): Promise<void> {
    await this.locked(ref, 'The instance could not be stopped.', () => this.endNow(ref));
  }

  private async endNow(ref: EngineRef): Promise<void> {
    const running = this.findAlive(ref);
    if (running !== undefined) await end(running);
    this.running.delete(ref);
    await this.limits.remove(ref);
    await this.ports.withdraw(ref);
  }

  async delete(ref: EngineRef): Promise<void> {
    const place = this.pathOf(ref);
    await this.locked(ref, 'The instance could not be deleted.', async () => {
      await this.endNow(ref);
      const taken = await this.keyChanges.run(ref, () => takeAway(place, this.layout));
      if (taken !== undefined) await removeTree(taken, this.host);
    });
  }

  async addKey(ref: EngineRef, key: AuthorizedKey): Promise<AddKeyOutcome> {
    const disk = join(this.pathOf(ref), 'disk');
    const owner = this.host.users.guest;
    return this.keyChanges.run(ref, () => addKeyTo(disk, owner, key, this.now()));
  }

  async removeKey(ref: EngineRef, match: KeyMatch): Promise<number> {
    const disk = join(this.pathOf(ref), 'disk');
    const owner = this.host.users.guest;
    return this.keyChanges.run(ref, () => removeKeyFrom(disk, owner, match));
  }

  async readKeys(ref: EngineRef): Promise<string> {
    return readKeyFile(join(this.pathOf(ref), 'disk'), this.host.users.guest).toString('utf8');
  }

  async createSnapshot(ref: EngineRef, snapshotRef: EngineRef): Promise<void> {
    const { host, quotas } = this;
    const place = entryPath(this.layout.snapshots, snapshotRef);
    await this.locked(ref, 'The snapshot could not be made.', async () => {
      if (await isThere(place)) return;
      await this.requireInstance(ref);
      await this.provisioner.build(place, async (folder) => {
        const disk = await this.provisioner.addEmptyDisk(folder);
        // A key that is being written would be in the copy by half.
        const from = join(this.pathOf(ref), 'disk');
        const copy = () => copyAtRest(from, disk, this.findAlive(ref), { host, quotas });
        await this.keyChanges.run(ref, copy);
        await syncDisk(disk, this.host);
      });
    });
  }

  async deleteSnapshot(snapshotRef: EngineRef): Promise<void> {
    await failingAs('The snapshot could not be deleted.', async () => {
      const taken = await takeAway(entryPath(this.layout.snapshots, snapshotRef), this.layout);
      if (taken !== undefined) await removeTree(taken, this.host);
    });
  }

  async close({ stop }: { stop: readonly EngineRef[] }): Promise<void> {
    await Promise.all(stop.filter((ref) => this.running.has(ref)).map((ref) => this.stop(ref)));
    await this.ports.withdrawAll();
    await this.limits.close();
  }

  private pathOf(ref: EngineRef): string {
    return entryPath(this.layout.instances, ref);
  }

  private async requireInstance(ref: EngineRef): Promise<void> {
    if (await isThere(this.pathOf(ref))) return;
    throw new EngineError('not_running', 'The instance has no disk on this host.');
  }

  private async locked<T>(ref: EngineRef, message: string, task: () => Promise<T>): Promise<T> {
    this.pathOf(ref);
    return this.work.run(ref, () => failingAs(message, task));
  }

  private now(): Date {
    return this.options.now?.() ?? new Date();
  }
}
