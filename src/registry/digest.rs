//! Digests of content: a sender cannot change what a digest names.

use std::fmt;

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

use crate::model::syntax::text::hex;
use crate::model::windows::image::is_digest;

/// A digest as in image references.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digest(String);

static ALGORITHMS: [(&str, &Algorithm); 3] = [("sha256", &SHA256), ("sha384", &SHA384), ("sha512", &SHA512)];

impl Digest {
    /// Parses a digest; `None` if it is of another form.
    pub fn parse(text: &str) -> Option<Digest> {
        is_digest(text).then(|| Digest(text.to_owned()))
    }

    /// The SHA-256 of content.
    pub fn of(content: &[u8]) -> Digest {
        Digest(format!("sha256:{}", hex(digest(&SHA256, content).as_ref())))
    }

    /// Whether it is the digest of this content.
    pub fn verifies(&self, content: &[u8]) -> bool {
        let (name, stated) = self.0.split_once(':').unwrap_or_default();
        let function = ALGORITHMS.iter().find(|(algorithm, _)| *algorithm == name);
        function.is_some_and(|(_, function)| hex(digest(function, content).as_ref()) == stated)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_names_one_content() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        let digest = Digest::parse(empty).unwrap();
        assert!(digest.verifies(b"") && !digest.verifies(b" "));
        let long = "sha512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";
        assert!(Digest::parse(long).unwrap().verifies(b""));
    }

    #[test]
    fn another_form_is_no_digest() {
        let upper = format!("sha256:{}", "A".repeat(64));
        for text in [
            "",
            "sha256:",
            "sha256:../../x",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &upper,
            &"a".repeat(64),
        ] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }
}
