/**
 * A network namespace of its own for an instance, by pasta(1) of the package passt: connections out are made
 * by an ordinary process of the host, the SSH port is forwarded in, and the host's loopback is out of reach.
 */

export function pastaArguments(endpoint: { ip: string; port: number | undefined }): string[] {
  const { ip, port } = endpoint;
  const forward = port === undefined ? 'none' : `${ip}/${port}:${port}`;
  return [
    '--foreground',
    '--quiet',
    '--config-net',
    // Without this the gateway's address would lead to the host's loopback.
    '--no-map-gw',
    ...['--tcp-ports', forward, '--udp-ports', 'none', '--tcp-ns', 'none', '--udp-ns', 'none'],
  ];
}
