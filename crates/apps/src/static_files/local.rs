//! Whether a file system can hang: one of another machine can, and one that a program stands behind.
//!
//! What lies on a disk of this machine, and is in the kernel's caches, is looked at by the thread that asks.
//! Anything else is looked at by threads that may wait (`Access::Any`): a server that does not answer
//! holds a `stat` for minutes, and with it the loop that called it.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// File systems whose answers never come over a network or from a program. Those not named here
/// count as if they did, which costs a step of a worker and nothing else.
const LOCAL: [u64; 16] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs: containers
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
    0x7371_7368, // squashfs
    0xE0F5_E1E2, // erofs
    0x9660,      // iso9660
    0x1501_3346, // udf
    0x4D44,      // vfat
    0x2011_BAB0, // exfat
    0x7366_746E, // ntfs3
];

/// Whether a file lies on a file system of this machine. May itself hang, as `statfs` does.
pub(super) fn is_local(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|fs| LOCAL.contains(&(fs.f_type as u64 & 0xFFFF_FFFF)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_pages_are_not_taken_for_a_disk() {
        assert!(!is_local(std::fs::File::open("/proc/self/stat").unwrap()));
        if let Ok(memory) = std::fs::File::open("/dev/shm") {
            assert!(is_local(memory));
        }
    }
}
