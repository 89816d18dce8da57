//! Memory that the process holds, and need not hold.

use std::ffi::{c_int, c_void};

/// Gives back the pages of the program file and of its libraries that starting up has read: the kernel
/// maps sixteen at a time around each that is touched, and most of them (options, help, checks, the
/// linking of libraries) are not needed again. What is needed is mapped anew when it is touched, from
/// the page cache.
pub fn release_program_pages() {
    // SAFETY: the function given keeps to what `dl_iterate_phdr` asks for, and gets no data.
    unsafe { libc::dl_iterate_phdr(Some(release_segments), std::ptr::null_mut()) };
}

/// Memory of this process that is in RAM, in bytes; `None` without `/proc`.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Gives back what the allocator keeps of what starting up has freed: options and help, mostly.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it asks for nothing, and leaves alone what is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// An entry of a dynamic segment, as the ELF specification has it for both widths of words.
#[repr(C)]
struct DynamicEntry {
    tag: isize,
    value: usize,
}

const DT_NULL: isize = 0;
const DT_TEXTREL: isize = 22;
const DT_FLAGS: isize = 30;
const DF_TEXTREL: usize = 4;

/// Whether the linker has written addresses into read-only segments of the object: those pages differ
/// from the file. Position-independent code has no need of it, but a preloaded library may be old.
fn relocates_text(dynamic: &[DynamicEntry]) -> bool {
    let mut entries = dynamic.iter().take_while(|it| it.tag != DT_NULL);
    entries
        .any(|it| it.tag == DT_TEXTREL || it.tag == DT_FLAGS && it.value & DF_TEXTREL == DF_TEXTREL)
}

/// Of one object; goes on with the next.
unsafe extern "C" fn release_segments(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> c_int {
    let page = rustix::param::page_size();
    // SAFETY: `dl_iterate_phdr` passes a valid description, whose table has `dlpi_phnum` entries; a
    // dynamic segment is mapped as long as its object is, and consists of such entries.
    let (base, headers, dynamic) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, count);
        let dynamic = headers.iter().find(|it| it.p_type == libc::PT_DYNAMIC);
        let dynamic = dynamic.map_or(&[][..], |it| {
            let first = (info.dlpi_addr + it.p_vaddr) as *const DynamicEntry;
            std::slice::from_raw_parts(first, it.p_memsz as usize / size_of::<DynamicEntry>())
        });
        (info.dlpi_addr, headers, dynamic)
    };
    if relocates_text(dynamic) {
        return 0;
    }
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        // Whole pages only: a page at the edge may belong to a neighbour that is written to.
        let begin = (base + header.p_vaddr) as usize;
        let end = (begin + header.p_memsz as usize) / page * page;
        let begin = begin.next_multiple_of(page);
        if end > begin {
            // SAFETY: these pages are mapped from a file, or by the kernel (the vDSO), and the linker
            // has not written to them (checked above), so what is dropped reads the same when it is
            // mapped anew.
            unsafe { libc::madvise(begin as *mut c_void, end - begin, libc::MADV_DONTNEED) };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_relocations_are_known_by_a_tag_or_a_flag_before_the_end() {
        let has_text_relocations = |entries: &[(isize, usize)]| {
            let entry = |&(tag, value): &(isize, usize)| DynamicEntry { tag, value };
            relocates_text(&entries.iter().map(entry).collect::<Vec<_>>())
        };
        assert!(has_text_relocations(&[
            (1, 5),
            (DT_TEXTREL, 0),
            (DT_NULL, 0)
        ]));
        assert!(has_text_relocations(&[
            (DT_FLAGS, 8 | DF_TEXTREL),
            (DT_NULL, 0)
        ]));
        assert!(!has_text_relocations(&[
            (1, DF_TEXTREL),
            (DT_FLAGS, 8),
            (DT_NULL, 0)
        ]));
        assert!(!has_text_relocations(&[(DT_NULL, 0), (DT_TEXTREL, 0)]));
        assert!(!has_text_relocations(&[]));
    }

    #[test]
    fn what_is_given_back_is_there_when_it_is_needed() {
        let before = std::env::args().count() + format!("{:?}", [1.5_f64]).len();
        release_program_pages();
        release_free_memory();
        let after = std::env::args().count() + format!("{:?}", [1.5_f64]).len();
        assert_eq!(before, after);
    }
}
