/**
 * The seccomp(2) filter of a sandbox: no kernel keyrings, no subvolumes.
 *
 * A guest inherits the session keyring of whoever started the service, and shares the keyrings of its user
 * with all other instances: no namespace keeps them apart (keyrings(7)). So the three calls that reach them
 * answer ENOSYS, as on a kernel without them, which programs know how to live with.
 *
 * On btrfs everybody may make subvolumes in their folders, and each begins with a quota of its own (btrfs-subvolume(8)).
 * So the requests of ioctl(2) that make one answer ENOTTY, as on other file systems.
 *
 * It is a program for the classic BPF machine: eight bytes an instruction. Each kind of processor numbers its
 * calls in its own way, and one process may make calls of two kinds, hence a section for each.
 */

interface Section {
  /** AUDIT_ARCH_* of linux/audit.h. */
  readonly architecture: number;
  /** add_key, request_key and keyctl. */
  readonly calls: readonly number[];
  readonly ioctl: number;
}

const SECTIONS: readonly Section[] = [
  { architecture: 0xc000_003e, calls: [248, 249, 250], ioctl: 16 }, // x86_64
  { architecture: 0x4000_0003, calls: [286, 287, 288], ioctl: 54 }, // i386
  { architecture: 0xc000_00b7, calls: [217, 218, 219], ioctl: 29 }, // aarch64
  { architecture: 0x4000_0028, calls: [309, 310, 311], ioctl: 54 }, // arm
];

/** x32 calls of x86_64 carry this bit; hardly a kernel has them, and nothing needs them. */
const X32_BIT = 0x4000_0000;

/** SNAP_CREATE, SUBVOL_CREATE and the second version of both, of linux/btrfs.h. */
const SUBVOLUME_REQUESTS = [0x5000_9401, 0x5000_940e, 0x5000_9417, 0x5000_9418];

// linux/bpf_common.h: load a word; jump when equal; jump when greater or equal; return.
const [LOAD, JUMP_EQUAL, JUMP_AT_LEAST, RETURN] = [0x20, 0x15, 0x35, 0x06] as const;
// Where struct seccomp_data holds the number of the call, the architecture, and the low half of the second argument.
const [CALL_OFFSET, ARCHITECTURE_OFFSET, REQUEST_OFFSET] = [0, 4, 24] as const;
const ALLOW = 0x7fff_0000;
const ANSWER_ENOSYS = 0x0005_0000 + 38;
const ANSWER_ENOTTY = 0x0005_0000 + 25;

/** The filter, written with octal escapes as printf(1) reads them. A call of an unknown kind answers ENOSYS. */
export function callFilter(): string {
  const program = Buffer.concat([
    instruction(LOAD, ARCHITECTURE_OFFSET),
    ...SECTIONS.map(section),
    instruction(RETURN, ANSWER_ENOSYS),
  ]);
  return [...program].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
}

/** Jumped over by calls of other kinds; ends in one of three returns. */
function section({ architecture, calls, ioctl }: Section): Buffer {
  const refused: [code: number, value: number][] = calls.map((call) => [JUMP_EQUAL, call]);
  // The bit is part of no number elsewhere.
  refused.push([JUMP_AT_LEAST, X32_BIT]);
  const requests = SUBVOLUME_REQUESTS.length;
  // Behind the checks of calls: one for ioctl, one load, the checks of requests, then the returns.
  const body = [
    instruction(LOAD, CALL_OFFSET),
    ...refused.map(([code, value], index) =>
      instruction(code, value, refused.length - index + requests + 2),
    ),
    instruction(JUMP_EQUAL, ioctl, 0, requests + 1),
    instruction(LOAD, REQUEST_OFFSET),
    ...SUBVOLUME_REQUESTS.map((request, index) =>
      instruction(JUMP_EQUAL, request, requests - index + 1),
    ),
    instruction(RETURN, ALLOW),
    instruction(RETURN, ANSWER_ENOSYS),
    instruction(RETURN, ANSWER_ENOTTY),
  ];
  return Buffer.concat([instruction(JUMP_EQUAL, architecture, 0, body.length), ...body]);
}

/** struct sock_filter of linux/filter.h; the jumps count instructions behind the next one. */
function instruction(code: number, value: number, ifTrue = 0, ifFalse = 0): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt16LE(code, 0);
  bytes.writeUInt8(ifTrue, 2);
  bytes.writeUInt8(ifFalse, 3);
  bytes.writeUInt32LE(value, 4);
  return bytes;
}
