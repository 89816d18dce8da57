//! Any bytes as the path of a request: what comes out stays below the root, agrees with a slow
//! and obvious decoder, and survives a redirect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::as_text;
use loadline_fuzz::content::path::{PathError, decode, directory_location, encode};
use percent_encoding::percent_decode;

fuzz_target!(|path: &[u8]| {
    let mut buffer = Vec::new();
    let decoded = decode(path, &mut buffer);
    let relative = decoded.map(|decoded| decoded.relative().to_vec());
    assert_eq!(relative, slowly(path), "{}", as_text(path));
    let Ok(decoded) = decoded else {
        return;
    };
    let relative = decoded.relative();
    let mut hidden = false;
    for (index, name) in relative.split(|byte| *byte == b'/').enumerate() {
        assert!(!name.is_empty() || relative.is_empty());
        assert!(name != b"." && name != b"..");
        assert!(!name.iter().any(|byte| matches!(byte, 0 | b'\\')));
        hidden |= name.starts_with(b".") && (index > 0 || name != b".well-known");
    }
    assert_eq!(decoded.has_hidden_component(), hidden);

    let (mut encoded, mut again) = (Vec::new(), Vec::new());
    encode(relative, decoded.is_directory_like(), &mut encoded);
    assert_eq!(decode(&encoded, &mut again), Ok(decoded));
    let location = directory_location(relative, Some(path));
    assert!(location.iter().all(u8::is_ascii_graphic));
    assert!(location[0] == b'/' && !matches!(location[1], b'/' | b'\\'));
});

/// The same rules, segment by segment, with no eye to speed.
fn slowly(path: &[u8]) -> Result<Vec<u8>, PathError> {
    let Some(path) = path.strip_prefix(b"/").or(path.is_empty().then_some(path)) else {
        return Err(PathError::Malformed);
    };
    let mut names: Vec<Vec<u8>> = Vec::new();
    let segments: Vec<_> = path.split(|byte| *byte == b'/').collect();
    for (index, segment) in segments.iter().enumerate() {
        check(segment)?;
        let name: Vec<u8> = percent_decode(segment).collect();
        match &name[..] {
            b"." => {}
            b".." => drop(names.pop().ok_or(PathError::Malformed)?),
            b"" if index + 1 == segments.len() => {}
            _ => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty());
    Ok(names.join(&b'/'))
}

fn check(segment: &[u8]) -> Result<(), PathError> {
    let mut rest = segment;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let digits = after
                .get(..2)
                .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
            match digits.map(|digits| percent_decode(&[b"%", digits].concat()).next().unwrap()) {
                None | Some(0) => return Err(PathError::Malformed),
                Some(b'/' | b'\\') => return Err(PathError::NoSuchName),
                Some(_) => rest = &after[2..],
            }
        } else if byte.is_ascii_control() || b" \\#?".contains(byte) {
            return Err(PathError::Malformed);
        }
    }
    Ok(())
}
