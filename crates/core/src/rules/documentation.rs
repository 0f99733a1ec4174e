//! Links to the documentation of rules, below the URL where the user publishes `docs/`. Without it, reports name the command
//! `transom explain`. A link contains the ID, so that renaming a rule does not change it.

use super::Rule;

/// Where `docs/` is published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentationUrl(String);

impl DocumentationUrl {
    /// Reads an absolute URL: a path would lead nowhere in a file that is passed on, and SARIF allows only absolute URIs.
    ///
    /// # Errors
    /// The text is not an absolute URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_url = text.starts_with("https://") || text.starts_with("http://");
        if !is_url || text.contains(char::is_whitespace) {
            return Err("write a URL as in https://git.example.com/transom/blob/main/docs".to_owned());
        }
        Ok(DocumentationUrl(text.trim_end_matches('/').to_owned()))
    }

    /// The link to the documentation of a rule.
    pub fn of_rule(&self, rule: &Rule) -> String {
        format!("{}/reference/rules.md#{}", self.0, rule.anchor())
    }
}

impl Rule {
    /// The anchor of the rule in the page: its ID in lower case, because anchors are case-sensitive.
    pub fn anchor(&self) -> String {
        self.id.to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::find;

    #[test]
    fn links_are_below_the_published_documentation() {
        let rule = find("TSM204").unwrap();
        for text in ["https://git.example.com/docs", "https://git.example.com/docs/"] {
            let url = DocumentationUrl::parse(text).unwrap();
            assert_eq!(
                url.of_rule(rule),
                "https://git.example.com/docs/reference/rules.md#tsm204"
            );
        }
        for bad in ["docs", "", "file:///docs", "https://a b"] {
            assert!(DocumentationUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
