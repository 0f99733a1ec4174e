//! The Content-Security-Policy of the page: only its own content runs, and nothing is fetched.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};

/// The policy for one style sheet and these scripts. The icon is an empty `data:` URL, so that browsers do
/// not request one.
pub(super) fn policy(style: &str, scripts: &[&str]) -> String {
    let scripts: Vec<_> = scripts.iter().map(|script| hash(script)).collect();
    format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hash(style),
        scripts.join(" ")
    )
}

/// The hash that a browser computes of the text between the tags.
fn hash(text: &str) -> String {
    format!(
        "'sha256-{}'",
        BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_as_browsers_read_it() {
        // The example of the specification Content Security Policy Level 3 for `alert('Hello, world.');`.
        let hello = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
        assert_eq!(hash("alert('Hello, world.');"), hello);
        let policy = policy("", &["a", "b"]);
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 3, "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
