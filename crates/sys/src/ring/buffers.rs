//! Buffers that the kernel takes received bytes into: lent to it, not to connections.
//!
//! A ring of them is registered once. A completion names the buffer that the kernel chose; after a
//! look at the bytes it goes back. An idle connection holds none.
//!
//! The kernel takes them in turn, so that all which it has become resident and pass through the
//! caches. It gets few at first, and more when they have run out.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The buffers of one ring. They must be dropped after the ring that they are registered with.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    count: u16,
    buffer_bytes: u32,
    /// How many the kernel has been given so far.
    given: u16,
    /// The next entry to be filled: what the kernel reads as the tail once it is published.
    tail: u16,
}

/// How many buffers the kernel gets at first: one for each of a few busy connections.
const FIRST: u16 = 32;

/// The group that receives name.
pub(super) const GROUP: u16 = 0;

impl ReceiveBuffers {
    /// `count` buffers (a power of two) of `buffer_bytes` each, the first few in the kernel's hands.
    pub(super) fn register(uring: &IoUring, count: u16, buffer_bytes: u32) -> io::Result<Self> {
        assert!(count.is_power_of_two() && count <= 1 << 15 && buffer_bytes > 0);
        let entries = map(ring_bytes(count))?;
        let bytes = match map(usize::from(count) * buffer_bytes as usize) {
            Ok(bytes) => bytes,
            Err(error) => {
                // SAFETY: mapped above with this length, and not shared yet.
                let _ = unsafe { munmap(entries.as_ptr().cast(), ring_bytes(count)) };
                return Err(error);
            }
        };
        let mut buffers = Self {
            entries: entries.cast(),
            bytes,
            count,
            buffer_bytes,
            given: 0,
            tail: 0,
        };
        // SAFETY: `entries` is page-aligned memory for `count` entries that stays mapped until
        // `drop`, which by the contract of this type comes after the ring is gone.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(
                buffers.entries.as_ptr() as u64,
                count,
                GROUP,
                0,
            )
        }?;
        buffers.give_up_to(FIRST);
        Ok(buffers)
    }

    /// Twice as many, as far as there are: those that the kernel had were not enough.
    pub(super) fn grow(&mut self) {
        self.give_up_to(self.given.saturating_mul(2));
    }

    /// How many the kernel has been given.
    #[cfg(test)]
    pub(super) fn given(&self) -> u16 {
        self.given
    }

    fn give_up_to(&mut self, wanted: u16) {
        let wanted = wanted.min(self.count);
        for index in self.given..wanted {
            self.put(index);
        }
        self.given = wanted;
        self.publish();
    }

    /// The first `len` bytes of a buffer that a completion named.
    pub(super) fn filled(&mut self, index: u16, len: usize) -> &mut [u8] {
        assert!(index < self.count && len <= self.buffer_bytes as usize);
        // SAFETY: in the mapping, by the check above. The kernel does not write to a buffer that it
        // has handed out until it is put back, and `&mut self` keeps that from happening.
        unsafe {
            let start = self
                .bytes
                .add(usize::from(index) * self.buffer_bytes as usize);
            std::slice::from_raw_parts_mut(start.as_ptr(), len)
        }
    }

    /// Queues a buffer to go back; the kernel sees it after `publish`.
    pub(super) fn put(&mut self, index: u16) {
        let slot = self.tail & (self.count - 1);
        let address = self.bytes.as_ptr() as u64 + u64::from(index) * u64::from(self.buffer_bytes);
        // SAFETY: in the mapping, by the mask; the kernel does not read entries from its tail on.
        let entry = unsafe { self.entries.add(usize::from(slot)).as_mut() };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes);
        entry.set_bid(index);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was put back.
    pub(super) fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, which is mapped; it is two bytes wide and
        // aligned (io_uring.h, `struct io_uring_buf_ring`), and the kernel only reads it.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()) as *mut u16) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        // SAFETY: mapped in `register` with these lengths; the ring that knew them is gone.
        unsafe {
            let _ = munmap(self.entries.as_ptr().cast(), ring_bytes(self.count));
            let len = usize::from(self.count) * self.buffer_bytes as usize;
            let _ = munmap(self.bytes.as_ptr().cast(), len);
        }
    }
}

// SAFETY: the mappings belong to this value alone, and nothing in them is bound to a thread.
unsafe impl Send for ReceiveBuffers {}

fn ring_bytes(count: u16) -> usize {
    usize::from(count) * size_of::<BufRingEntry>()
}

pub(super) fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh private mapping at an address of the kernel's choice.
    let address = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))
}
