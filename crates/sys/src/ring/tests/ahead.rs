//! Files that the ring reads ahead.

use std::sync::Arc;

use loadline_base::OpenFile;

use super::*;

pub(super) fn uncached_file(len: usize) -> Arc<OpenFile> {
    crate::write::tests::uncached_file(&vec![b'f'; len])
}

#[test]
fn a_range_that_was_read_ahead_is_cached() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let (_ours, id, token) = adopted(&mut ring);
    let file = uncached_file(1_000_000);
    for (offset, len, right) in [
        (0, 500_000, 500_000),
        (999_000, 5_000, 1_000),
        (2_000_000, 1, 0),
    ] {
        if !ring.read_ahead(id, &file, offset, len) {
            assert!(!ring.features().read_ahead);
            return;
        }
        assert!(!ring.read_ahead(id, &file, 0, 1), "one at a time");
        drive(&mut ring, |_, one| *one == Seen::ReadAhead(token, right));
        let cached = crate::file::read_cached(&file.fd, &mut [0; 900], offset).unwrap();
        assert!(
            !matches!(cached, crate::file::CachedRead::NotCached),
            "{cached:?}"
        );
    }
    ring.close(id);
}

/// The descriptor may not be another's when the kernel looks at it, nor the slot.
#[test]
fn a_file_that_is_read_ahead_stays_open_when_everybody_has_gone() {
    let Some(mut ring) = ring(&SMALL) else { return };
    for _ in 0..20 {
        let (_ours, id, _) = adopted(&mut ring);
        let file = uncached_file(400_000);
        let weak = Arc::downgrade(&file);
        if !ring.read_ahead(id, &file, 0, 400_000) {
            return;
        }
        ring.close(id);
        drop(file);
        assert!(weak.strong_count() == 1, "the ring keeps it open");
        let (next, token) = adopt(&mut ring, connected().1);
        assert_ne!(next.0.index, id.0.index, "still in use by the kernel");
        while ring.len() > 1 {
            ring.wait(Some(5_000_000_000)).unwrap();
            while let Some(completion) = ring.next_completion() {
                assert!(
                    !matches!(completion, Completion::ReadAhead { token: of, .. } if of == token)
                );
            }
        }
        assert_eq!(weak.strong_count(), 0);
        ring.close(next);
    }
}
