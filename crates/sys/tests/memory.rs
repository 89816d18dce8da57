//! What a process holds, in a process of its own: other tests would take memory meanwhile.

/// Bytes of files that are mapped and in memory, in KiB (`RssFile` of /proc/self/status).
fn resident_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("RssFile:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_program_runs_on_and_holds_less() {
    let before = resident_kib().expect("a line of its status");
    loadline_sys::memory::release_program_pages();
    let after = resident_kib().expect("a line of its status");
    assert!(after < before, "{before} KiB, then {after} KiB");
    assert_eq!(format!("{:?}", [1.5, 2.5]), "[1.5, 2.5]"); // code and constants are there
}
