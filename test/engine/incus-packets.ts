/** What a hostile guest sends to the DHCP and the DNS of its bridge. */

import type { TestGuest } from './incus-guests.ts';

/** RFC 2132, section 9.6. */
const KINDS = { REQUEST: 3, DECLINE: 4, RELEASE: 7 };

export interface ForgedDhcp {
  /** `late`: what kind it is comes after other options. */
  readonly kind: keyof typeof KINDS | `late ${keyof typeof KINDS}`;
  readonly mac: string;
  /** Of whom the client's identifier is. */
  readonly client: string;
  /** What is asked for, or given up. */
  readonly address: string;
}

/** RFC 2131; the server's identifier, the address, the client's identifier and the kind are options (RFC 2132). */
const SEND_DHCP = `
use Socket;
my ($server, $kind, $late, $mac, $client, $address) = @ARGV;
my ($type, $ip) = (pack("CCC", 53, 1, $kind), inet_aton($address));
my $options = pack("CC", 54, 4) . inet_aton($server) . pack("CC", 50, 4) . $ip
  . pack("CCC", 61, 7, 1) . pack("H*", $client);
my $ciaddr = $kind == 7 ? $ip : pack("x4");
my $packet = pack("CCCCNnn", 1, 1, 6, 0, rand(2**31), 0, 0) . $ciaddr . pack("x12")
  . pack("H*", $mac) . pack("x10 x192 H8", "63825363")
  . ($late ? $options . $type : $type . $options) . pack("C x20", 255);
socket(my $socket, PF_INET, SOCK_DGRAM, getprotobyname("udp") || 17) or exit 1;
send($socket, $packet, 0, pack_sockaddr_in(67, inet_aton($server))) or exit 2;
`;

export async function sendDhcp(
  guest: TestGuest,
  server: string,
  { kind, mac, client, address }: ForgedDhcp,
): Promise<void> {
  const isLate = kind.startsWith('late ');
  const number = KINDS[kind.replace('late ', '') as keyof typeof KINDS];
  const hex = (text: string) => text.replaceAll(':', '');
  const words = [server, number, isLate ? 1 : 0, hex(mac), hex(client), address];
  const status = await guest.run('perl', '-e', SEND_DHCP, ...words.map(String));
  if (status !== 0) throw new Error(`Sending a ${kind} ended with ${status}.`);
}

/** Exits with how many names the server knows for the address (RFC 1035). */
const COUNT_NAMES = `
use IO::Socket::INET;
my ($server, $address) = @ARGV;
my $name = join("", map { pack("C/a", $_) } reverse(split(/[.]/, $address)), "in-addr", "arpa") . pack("x");
my $socket = IO::Socket::INET->new(PeerAddr => $server, PeerPort => 53, Proto => "udp") or exit 100;
for (1 .. 5) {
  $socket->send(pack("nnnnnn", 7, 256, 1, 0, 0, 0) . $name . pack("nn", 12, 1));
  my $ready = "";
  vec($ready, fileno($socket), 1) = 1;
  next unless select($ready, undef, undef, 5);
  $socket->recv(my $answer, 512);
  exit((unpack("nnnn", $answer))[3]);
}
exit 101;
`;

export async function countNames(
  guest: TestGuest,
  server: string,
  address: string,
): Promise<number> {
  const status = await guest.run('perl', '-e', COUNT_NAMES, server, address);
  if (status >= 100) throw new Error(`Asking for a name ended with ${status}.`);
  return status;
}
