import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { EngineError, type MachineSpec } from '../../src/engines/engine.ts';
import {
  bodyFromHolder,
  bodyFromTemplate,
  type CopySource,
  deviceChange,
  diskSizeOf,
  fencesOf,
  gpuDevice,
  gpuDevices,
  holderBody,
  readKeys,
  type Surroundings,
  settingsChange,
} from '../../src/engines/incus/instance-config.ts';
import { instanceName, projectOf, snapshotName } from '../../src/engines/incus/names.ts';

const machine: MachineSpec = {
  ref: 'one',
  hostname: 'box',
  cpuCores: 2,
  memoryGb: 8,
  diskSizeGb: 100,
  sshPort: 22_005,
  httpPorts: [8000],
  orgId: 'org',
  host: undefined,
  gpus: [],
};
const nic = { type: 'nic', network: 'br0', name: 'eth0', 'ipv4.address': '10.0.0.15' };
const around: Surroundings = {
  pool: 'fast',
  limitsDisks: true,
  nic,
  type: 'container',
  isolated: true,
  nvidiaRuntime: false,
};
const card = { attach: 'physical', pci: '0000:3b:00.0' };
const expiresAt = new Date('2030-01-02T03:04:05Z');
const keys = [{ publicKey: 'ssh-ed25519 AAAA a' }, { publicKey: 'ssh-ed25519 BBBB', expiresAt }];

/** The ioctls of linux/btrfs.h that make, change and delete subvolumes, whatever is in the upper half of the word. */
const deny = [
  ...['0x50009401', '0x5000940e', '0x5000940f', '0x50009417', '0x50009418'],
  ...['0x4008941a', '0xc0c89425', '0xc0c09425', '0x5000943f'],
]
  .map((command) => `ioctl errno 1 [1,${command},SCMP_CMP_MASKED_EQ,0xffffffff]`)
  .join('\n');

const ownConfig = {
  'boot.autostart': 'false',
  'environment.BERTH_HOSTNAME': 'box',
  'environment.BERTH_ID': 'one',
  'limits.cpu': '2',
  'limits.memory': '8GiB',
  'limits.processes': '8192',
  'nvidia.runtime': '',
  'security.guestapi': 'false',
  'security.idmap.isolated': 'true',
  'security.nesting': 'false',
  'security.syscalls.deny': deny,
  'user.berth.hostname': 'box',
  'user.berth.kind': 'instance',
  'user.berth.ready': '',
  'user.berth.ref': 'one',
};

test('an instance of a template: exactly this', () => {
  assert.deepEqual(bodyFromTemplate(machine, 'base', around, []), {
    name: 'berth-i-one',
    type: 'container',
    profiles: [],
    source: { type: 'image', alias: 'berth-base' },
    config: { ...ownConfig, 'user.berth.keys': '' },
    devices: {
      root: { type: 'disk', path: '/', pool: 'fast', size: '100GB' },
      eth0: nic,
    },
  });
});

test('first keys come back as they were', () => {
  const { config } = bodyFromTemplate(machine, 'base', around, keys);
  assert.deepEqual(readKeys(config['user.berth.keys']), keys);
  assert.deepEqual(readKeys(''), []);
  assert.deepEqual(readKeys(undefined), []);
});

test('a virtual machine gets none of the settings that only containers have', () => {
  const vm = { ...around, type: 'virtual-machine' } as const;
  const { config, type } = bodyFromTemplate(machine, 'base', vm, []);
  assert.equal(type, 'virtual-machine');
  assert.deepEqual(
    Object.keys(config).filter((key) => !key.startsWith('user.')),
    ['limits.cpu', 'limits.memory', 'boot.autostart'],
  );
});

test('the disk of a virtual machine has its size on any pool', () => {
  const vm = { ...around, type: 'virtual-machine', limitsDisks: false } as const;
  assert.equal(diskSizeOf(bodyFromTemplate(machine, 'base', vm, []).devices), 100);
});

test('an image that says it is not signed starts without secure boot, another one as it is set', () => {
  const unsigned = { 'image.requirements.secureboot': 'false' };
  assert.deepEqual(fencesOf('virtual-machine', unsigned), { 'security.secureboot': 'false' });
  assert.deepEqual(fencesOf('virtual-machine', {}), {});
  assert.equal('security.secureboot' in fencesOf('container', unsigned), false);
});

test('a pool that cannot limit disks is not asked to', () => {
  const { devices } = bodyFromTemplate(machine, 'base', { ...around, limitsDisks: false }, []);
  assert.deepEqual(devices.root, { type: 'disk', path: '/', pool: 'fast' });
  assert.equal(diskSizeOf(devices), undefined);
});

test('cards are attached by their address, and the driver comes along where that is set', () => {
  const migUuid = 'a1b2c3d4-0000-1111-2222-333344445555';
  const gpus = [card, { attach: 'mig', pci: '0000:af:00.0', migUuid }];
  const wanted = { ...around, nvidiaRuntime: true };
  const { config, devices } = bodyFromTemplate({ ...machine, gpus }, 'base', wanted, []);
  assert.equal(config['nvidia.runtime'], 'true');
  assert.deepEqual(devices.gpu0, { type: 'gpu', gputype: 'physical', pci: '0000:3b:00.0' });
  assert.deepEqual(devices.gpu1, {
    type: 'gpu',
    gputype: 'mig',
    pci: '0000:af:00.0',
    'mig.uuid': migUuid,
  });
});

test('a card is never attached without an address, or in a way that Incus does not know', () => {
  const wrong = [
    { attach: 'physical', pci: '' },
    { attach: 'physical', pci: '3b:00.0' },
    { attach: 'mig', pci: '0000:3b:00.0' },
    { attach: 'magic', pci: '0000:3b:00.0' },
  ];
  for (const gpu of wrong) assert.throws(() => gpuDevice(gpu), EngineError);
});

const source: CopySource = {
  name: 'berth-i-one',
  project: 'default',
  type: 'container',
  architecture: 'x86_64',
  config: {
    ...ownConfig,
    'limits.cpu.priority': '5',
    'raw.lxc': 'by hand',
    'user.berth.ready': 'true',
    'volatile.uuid': 'x',
  },
  devices: {
    root: { type: 'disk', path: '/', pool: 'fast', size: '100GB' },
    eth0: nic,
    gpu0: gpuDevice(card),
    extra: { type: 'disk', source: '/srv', path: '/srv' },
  },
};

test('a holder keeps the disk and inherits nothing else', () => {
  assert.deepEqual(holderBody('snap', source), {
    name: 'berth-s-snap',
    type: 'container',
    architecture: 'x86_64',
    profiles: [],
    source: { type: 'copy', source: 'berth-i-one', project: 'default', instance_only: true },
    config: {
      'boot.autostart': 'false',
      'environment.BERTH_HOSTNAME': '',
      'environment.BERTH_ID': '',
      'limits.cpu': '',
      'limits.cpu.priority': '',
      'limits.memory': '',
      'limits.processes': '',
      'nvidia.runtime': '',
      'raw.lxc': '',
      'security.guestapi': '',
      'security.idmap.isolated': '',
      'security.nesting': '',
      'security.syscalls.deny': '',
      'user.berth.hostname': '',
      'user.berth.kind': 'snapshot',
      'user.berth.ready': '',
      'user.berth.ref': 'snap',
      // What an image would write into a tenant's disk as root of the host.
      'volatile.apply_template': 'none',
    },
    devices: {
      root: { type: 'disk', path: '/', pool: 'fast', size: '100GB' },
      eth0: { type: 'none' },
      gpu0: { type: 'none' },
      extra: { type: 'none' },
    },
  });
});

test('a restored instance is like a new one, with the disk of the holder', () => {
  const holder: CopySource = {
    ...source,
    name: 'berth-s-snap',
    config: {
      'boot.autostart': 'false',
      'user.berth.kind': 'snapshot',
      'user.berth.ready': 'true',
    },
    devices: { ...source.devices, eth0: { type: 'none' }, gpu0: { type: 'none' } },
  };
  assert.deepEqual(bodyFromHolder({ ...machine, gpus: [card] }, holder, around, []), {
    name: 'berth-i-one',
    type: 'container',
    architecture: 'x86_64',
    profiles: [],
    source: { type: 'copy', source: 'berth-s-snap', project: 'default', instance_only: true },
    config: { ...ownConfig, 'user.berth.keys': '', 'volatile.apply_template': 'none' },
    devices: {
      root: { type: 'disk', path: '/', pool: 'fast', size: '100GB' },
      eth0: nic,
      gpu0: { type: 'gpu', gputype: 'physical', pci: '0000:3b:00.0' },
      extra: { type: 'none' },
    },
  });
});

test('only what differs is sent, and what is to go is masked', () => {
  assert.deepEqual(settingsChange({ a: '1', b: '2' }, { a: '1', b: '3', c: '' }), { b: '3' });
  const current = { gpu0: gpuDevice(card), gpu1: { type: 'none' }, eth0: nic };
  assert.deepEqual(deviceChange(current, { eth0: { ...nic } }), { gpu0: { type: 'none' } });
  const other = gpuDevices([{ ...card, pci: '0000:af:00.0' }]);
  assert.deepEqual(deviceChange({ gpu0: gpuDevice(card) }, other), other);
  assert.deepEqual(deviceChange({ gpu0: { type: 'none' } }, {}), {});
});

test('names are safe in a path and in DNS', () => {
  const uuid = '0f0e0d0c-0b0a-4908-8706-050403020100';
  for (const name of [instanceName(uuid), snapshotName(uuid)])
    assert.match(name, /^[a-z][a-z0-9-]{0,61}[a-z0-9]$/);
  for (const ref of ['', '../x', 'a/b', 'a?project=b', 'a-', 'x'.repeat(60)])
    assert.throws(() => instanceName(ref), EngineError);
});

test('an organization has a project of its own only where the operator wants that', () => {
  assert.equal(projectOf({ project: 'p', projectPerOrganization: false }, 'org'), 'p');
  assert.equal(projectOf({ project: 'p', projectPerOrganization: true }, 'org'), 'berth-org');
});

test('the sockets of a virtual machine fit into a path that Linux takes', () => {
  const uuid = randomUUID();
  for (const projectPerOrganization of [true, false]) {
    const project = projectOf({ project: 'default', projectPerOrganization }, randomUUID());
    const folder = `${project}_${instanceName(uuid)}`;
    const path = `/var/lib/incus/run/${folder}/virtio-fs.config.sock`;
    assert.ok(path.length <= 107, `${path} has ${path.length} characters`);
  }
});
