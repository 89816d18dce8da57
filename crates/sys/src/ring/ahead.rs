//! Reading files ahead: into the page cache, by the kernel, while the loop goes on with others.
//!
//! What is read is not looked at: the bytes go to one place for all reads, and the loop sends the
//! file from the page cache once that is reported. So a read waits for a disk alone, never for the reader
//! of an answer, and however many are under way, they take no memory.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{opcode, types};
use loadline_base::OpenFile;
use rustix::mm::munmap;

use super::{OperationKind, Ring, SocketId, buffers, user_data};
use crate::write::FILE_CHUNK_BYTES;

/// Where unwanted bytes go. It must be dropped after the ring that reads into it.
#[derive(Debug)]
pub(super) struct Sink(NonNull<u8>);

impl Sink {
    /// Takes address space; memory only as far as reads have reached.
    pub(super) fn new() -> io::Result<Self> {
        buffers::map(FILE_CHUNK_BYTES as usize).map(Self)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no reference to it was ever made, and the ring
        // that read into it is gone.
        unsafe {
            let _ = munmap(self.0.as_ptr().cast(), FILE_CHUNK_BYTES as usize);
        }
    }
}

// SAFETY: the mapping belongs to this value alone, and nothing in it is bound to a thread.
unsafe impl Send for Sink {}

impl Ring {
    /// Brings a range of a file into memory, at most `FILE_CHUNK_BYTES` of it, on behalf of a socket;
    /// answered by `ReadAhead`. One at a time: `false` if one is under way, or if this ring leaves it
    /// to others.
    pub fn read_ahead(
        &mut self,
        id: SocketId,
        file: &Arc<OpenFile>,
        offset: u64,
        len: u64,
    ) -> bool {
        let address = self.sink.0.as_ptr();
        let offers = self.features.read_ahead;
        let Some(socket) = self.sockets.open(id) else {
            return false;
        };
        if !offers || socket.reading.is_some() {
            return false;
        }
        socket.in_flight += 1;
        // The descriptor is looked up when the operation is submitted: it has to be this file's then.
        socket.reading = Some(Arc::clone(file));
        let len = len.min(FILE_CHUNK_BYTES) as u32;
        let read = opcode::Read::new(types::Fd(file.fd.as_raw_fd()), address, len);
        let entry = read.offset(offset).build();
        self.push(entry.user_data(user_data(OperationKind::ReadAhead, id.0.index)));
        true
    }
}
