//! The Content-Security-Policy of the page: what stands in it runs, and nothing else, and nothing is fetched.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};

/// The policy for one style and these scripts. The icon is an empty `data:` address: a browser asks for none then.
pub(super) fn policy(style: &str, scripts: &[&str]) -> String {
    let scripts: Vec<_> = scripts.iter().map(|script| hash(script)).collect();
    format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hash(style),
        scripts.join(" ")
    )
}

/// What a browser computes of the text between the tags.
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
        // The example of the Content Security Policy specification, level 3, for `alert('Hello, world.');`.
        let hello = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
        assert_eq!(hash("alert('Hello, world.');"), hello);
        let policy = policy("", &["a", "b"]);
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 3, "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
