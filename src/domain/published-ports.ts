/** The rules for the ports that an instance has published: 400s that name the port. */

import { invalidRequest } from './errors.ts';

export const mostPortsAnInstance = 32;
const highestPort = 65_535;
/** SSH has a port of its own, which the service gives out. */
const reservedPort = 22;

export interface PortChange {
  readonly add: readonly number[];
  readonly remove: readonly number[];
}

/**
 * The published ports after a change, lowest first. Adding what is there and removing what is not there is harmless,
 * so that a request can be repeated.
 * @throws AppError `invalid_request`
 */
export function changePorts(current: readonly number[], { add, remove }: PortChange): number[] {
  requirePorts('add_ports', add);
  requirePorts('remove_ports', remove);
  const both = add.find((port) => remove.includes(port));
  if (both !== undefined)
    throw invalidRequest(
      `Port ${both} is in "add_ports" and in "remove_ports". Leave it out of one of them.`,
    );
  const ports = new Set([...current, ...add]).difference(new Set(remove));
  if (ports.size > mostPortsAnInstance && add.length > 0)
    throw invalidRequest(
      `The instance would have ${ports.size} published ports, but it may have at most ${mostPortsAnInstance}. Remove some with "remove_ports".`,
    );
  return [...ports].sort((one, other) => one - other);
}

function requirePorts(field: string, ports: readonly number[]): void {
  for (const [index, port] of ports.entries()) {
    if (port < 1 || port > highestPort)
      throw invalidRequest(
        `The field "${field}" has ${port}, but a port is a number from 1 to ${highestPort}.`,
      );
    if (port === reservedPort)
      throw invalidRequest(
        `The field "${field}" has ${port}, which is reserved: SSH answers on the port that the instance shows.`,
      );
    if (ports.indexOf(port) !== index)
      throw invalidRequest(`The field "${field}" has ${port} twice. Give each port once.`);
  }
}

export const samePorts = (one: readonly number[], other: readonly number[]): boolean =>
  one.length === other.length && one.every((port) => other.includes(port));
