//! An authority that looks at nothing: it has a directory and nonces, and answers anything else as a test says.

use serde_json::{Value, json};

use crate::front::{Answer, Front, ReceivedRequest};

/// Starts one whose directory has this `meta`. Other requests are answered with a status and an object, given the
/// URL before their path. `None`: the connection is closed without an answer.
pub fn start(
    meta: Value,
    mut answers: impl FnMut(&ReceivedRequest, &str) -> Option<(u16, Value)> + Send + 'static,
) -> Front {
    let answer = move |request: &ReceivedRequest, base: &str| {
        let url = |path: &str| format!("{base}{path}");
        let (status, content) = match request.path.as_str() {
            "/dir" => {
                let directory = json!({
                    "newNonce": url("/nonce"), "newAccount": url("/account"),
                    "newOrder": url("/order"), "revokeCert": url("/revoke"),
                    "keyChange": url("/key"), "renewalInfo": url("/info"), "meta": meta,
                });
                (200, directory)
            }
            "/nonce" => (200, json!({})),
            _ => answers(request, base)?,
        };
        Some(Answer {
            status,
            fields: vec![
                ("content-type".into(), "application/json".into()),
                ("replay-nonce".into(), "nonce".into()),
                ("location".into(), url("/account/1")),
            ],
            content: content.to_string().into_bytes(),
        })
    };
    Front::start(Box::new(answer))
}
