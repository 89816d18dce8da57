//! Memory that the process need not hold.

use std::ffi::{c_int, c_void};

/// Gives back the pages of the program file that starting up has read: the kernel maps sixteen at a
/// time around each that is touched, and most of them (options, help, checks) are not needed again.
/// What is needed is mapped anew when it is touched, from the page cache.
pub fn release_program_pages() {
    // SAFETY: the function given keeps to what `dl_iterate_phdr` asks for, and gets no data.
    unsafe { libc::dl_iterate_phdr(Some(release_segments), std::ptr::null_mut()) };
}

/// Gives back what the allocator keeps of what starting up has freed: options and help, mostly.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it asks for nothing, and leaves alone what is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Of the first object, which is the program itself: then it says that that was all.
unsafe extern "C" fn release_segments(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> c_int {
    let page = rustix::param::page_size();
    // SAFETY: `dl_iterate_phdr` passes a valid description, whose table has `dlpi_phnum` entries.
    let (base, headers) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        (
            info.dlpi_addr,
            std::slice::from_raw_parts(info.dlpi_phdr, count),
        )
    };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        // Whole pages only: a page at the edge may belong to a neighbour that is written to.
        let begin = (base + header.p_vaddr) as usize;
        let end = (begin + header.p_memsz as usize) / page * page;
        let begin = begin.next_multiple_of(page);
        if end > begin {
            // SAFETY: these pages are mapped from the program file and are never written to (a
            // relocation of code would need a writable segment, and position-independent programs
            // have none), so what is dropped reads the same when it is mapped anew.
            unsafe { libc::madvise(begin as *mut c_void, end - begin, libc::MADV_DONTNEED) };
        }
    }
    1
}
