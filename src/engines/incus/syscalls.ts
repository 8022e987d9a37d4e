/**
 * System calls that no container may make.
 *
 * Root in a container can make btrfs subvolumes in its own disk, and names them. Incus looks for subvolumes in the
 * whole pool, as root of the host, in a list with one name per line: a name with a line break in it passes for the disk
 * of a neighbour, which is then read, snapshotted or deleted in place of the guest's. Each has a quota of its own, too.
 */

/** From linux/btrfs.h; the same for every architecture, but for one. */
const subvolumeCommands: Readonly<Record<string, number>> = {
  BTRFS_IOC_SNAP_CREATE: 0x50009401,
  BTRFS_IOC_SUBVOL_CREATE: 0x5000940e,
  BTRFS_IOC_SNAP_DESTROY: 0x5000940f,
  BTRFS_IOC_SNAP_CREATE_V2: 0x50009417,
  BTRFS_IOC_SUBVOL_CREATE_V2: 0x50009418,
  BTRFS_IOC_SUBVOL_SETFLAGS: 0x4008941a,
  BTRFS_IOC_SET_RECEIVED_SUBVOL: 0xc0c89425,
  /** Of programs of 32 bits. */
  BTRFS_IOC_SET_RECEIVED_SUBVOL_32: 0xc0c09425,
  BTRFS_IOC_SNAP_DESTROY_V2: 0x5000943f,
};

const notPermitted = 1;

/** `security.syscalls.deny`. The mask: the kernel looks at 32 bits of the command, a filter at 64. */
export const deniedSyscalls: string = Object.values(subvolumeCommands)
  .map(
    (command) =>
      `ioctl errno ${notPermitted} [1,0x${command.toString(16)},SCMP_CMP_MASKED_EQ,0xffffffff]`,
  )
  .join('\n');
