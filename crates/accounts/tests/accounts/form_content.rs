//! Forms as browsers send them.

/// The content of a form with these fields.
pub(crate) fn form_content(fields: &[(&str, &str)]) -> String {
    let encode = |text: &str| -> String {
        let bytes = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            b' ' => "+".to_owned(),
            byte => format!("%{byte:02X}"),
        });
        bytes.collect()
    };
    let pairs = fields
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}
