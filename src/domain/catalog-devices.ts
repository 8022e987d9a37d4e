/** The parts of a catalog file that say where things are to be had: hosts, and the devices that are a type's GPUs. */

import { attachesNothing, type ListedDevice } from './catalog.ts';
import { normalizeMigUuid } from './placement.ts';
import type { Place } from './yaml-places.ts';

const hostName = {
  test: /^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/,
  hint: 'the name of a host: letters, digits, ".", "_" or "-"',
};
const pciAddress = {
  test: /^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$/,
  hint: 'a PCI address such as "0000:3b:00.0"',
};
const migUuid = {
  test: /^(?:MIG-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$/,
  hint: 'the UUID of a MIG instance, as "nvidia-smi -L" prints it',
};
/** Attaches a part of a card, which has to be named. */
const attachesPart = 'mig';

/** Left out: any host. */
export function readHosts(place: Place | undefined): string[] {
  const found = new Set<string>();
  for (const item of place?.list('names of hosts', 1) ?? []) {
    const name = item.text(253, hostName);
    if (found.has(name)) item.problem(`The host "${name}" is there twice.`);
    found.add(name);
  }
  return [...found];
}

/** Left out: whatever a host has for the type's way of attaching. */
export function readDevices(
  place: Place | undefined,
  type: { readonly attach: string; readonly hosts: readonly string[] },
): ListedDevice[] {
  if (!place) return [];
  if (type.attach === attachesNothing)
    place.problem(`A type with "attach: ${attachesNothing}" has no devices.`);
  const found = new Set<string>();
  return place.list('devices', 1).map((item) => {
    const device = readDevice(item, type);
    const key = [device.host ?? '', device.pci, device.migUuid ?? ''].join(' ');
    if (found.has(key) && device.pci !== '') item.problem('The device is there twice.');
    found.add(key);
    return device;
  });
}

function readDevice(
  place: Place,
  { attach, hosts }: { readonly attach: string; readonly hosts: readonly string[] },
): ListedDevice {
  const fields = place.fields('a device: a map with its pci');
  const hostPlace = fields.optional('host');
  const host = hostPlace?.text(253, hostName);
  if (host && hosts.length > 0 && !hosts.includes(host))
    hostPlace?.problem(`The host "${host}" is not among the hosts of the type.`);
  const pci = fields.required('pci').text(12, pciAddress).toLowerCase();
  const part = attach === attachesPart ? fields.required('mig_uuid') : fields.optional('mig_uuid');
  if (part && attach !== attachesPart)
    part.problem(`Only a type with "attach: ${attachesPart}" has parts of cards.`);
  fields.finish();
  const uuid = part?.text(40, migUuid);
  return {
    ...(host !== undefined && { host }),
    pci,
    ...(uuid !== undefined && { migUuid: normalizeMigUuid(uuid) }),
  };
}
