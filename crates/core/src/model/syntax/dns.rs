//! DNS names of Kubernetes objects: labels and subdomains of RFC 1123. Every check of such names uses this module.

/// Whether the text is one label: letters of either case, digits and inner hyphens; not empty, any length.
pub fn is_label(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    plain && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether the text is a lower-case RFC 1123 subdomain: labels separated by dots, at most 253 bytes.
///
/// Source: apimachinery `validation.IsDNS1123Subdomain`.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && !text.contains(|c: char| c.is_ascii_uppercase()) && text.split('.').all(is_label)
}

/// A text such as the value of a label, as the name of an object: lower case, without the characters that names do not have.
pub fn object_name(text: &str) -> String {
    let name = text
        .to_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    name.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_lower_case_labels_parted_by_dots() {
        for name in ["gmsa-webapp1", "web.example.com", "1", &"a".repeat(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in [
            "",
            "gmsa-WebApp1",
            "web_app",
            "-web",
            "web-",
            "web..app",
            ".web",
            "web.",
            "wéb",
            &"a".repeat(254),
        ] {
            assert!(!is_subdomain(name), "{name}");
        }
    }
}
