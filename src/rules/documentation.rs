//! The address of each rule's documentation. It contains the ID, so that renaming a rule does not change it.

use super::Rule;

/// Where `docs/` is published: the environment variable `TRANSOM_DOCS_URL` when the program is built, otherwise the path
/// in the repository.
const DOCUMENTATION: &str = match option_env!("TRANSOM_DOCS_URL") {
    Some(url) if !url.is_empty() => url,
    _ => "docs",
};

/// The address of the page with all rules, such as `docs/reference/rules.md`.
pub fn page() -> String {
    page_below(DOCUMENTATION)
}

fn page_below(documentation: &str) -> String {
    format!("{}/reference/rules.md", documentation.trim_end_matches('/'))
}

impl Rule {
    /// The anchor of the rule in the page: its ID in lower case, because anchors are case-sensitive.
    pub fn anchor(&self) -> String {
        self.id.to_ascii_lowercase()
    }

    /// The address of the rule's documentation, such as `docs/reference/rules.md#tsm204`.
    pub fn address(&self) -> String {
        format!("{}#{}", page(), self.anchor())
    }
}

/// The address, if it is a URL. A path in the repository is none: SARIF requires absolute URIs, and a link in a file
/// that is passed on would lead nowhere.
pub fn as_url(address: &str) -> Option<&str> {
    address.contains("://").then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_below_the_published_documentation() {
        assert_eq!(page_below("docs"), "docs/reference/rules.md");
        let published = page_below("https://git.example.com/transom/blob/main/docs/");
        assert_eq!(
            published,
            "https://git.example.com/transom/blob/main/docs/reference/rules.md"
        );
        assert_eq!(as_url(&published), Some(published.as_str()));
        assert_eq!(as_url("docs/reference/rules.md#tsm204"), None);
    }
}
