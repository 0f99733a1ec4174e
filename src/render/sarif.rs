//! SARIF 2.1.0: the parts that the logs of all commands share.
//!
//! Source: OASIS, Static Analysis Results Interchange Format 2.1.0.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::plain::write_json;
use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::one_line;
use crate::rules::Rule;
use crate::rules::documentation::DocumentationUrl;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Writes a log with one run.
///
/// # Errors
/// The errors of the writer.
pub fn write_log(run: &Value, out: &mut dyn Write) -> io::Result<()> {
    write_json(
        &json!({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}),
        out,
    )
}

/// Transom, with the rules that the results refer to.
pub fn tool(rules: &[Value]) -> Value {
    json!({"driver": {
        "name": "transom",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": rules,
    }})
}

/// A message without links: SARIF reads `[text](target)` as a link, and `\[` and `\]` as brackets (section
/// 3.11.6). A backslash before a bracket is doubled, so that it does not end the escape.
pub fn message(text: &str) -> Value {
    let line = one_line(text);
    let mut escaped = String::with_capacity(line.len());
    let mut backslashes = 0;
    for c in line.chars() {
        if matches!(c, '[' | ']') {
            escaped.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        escaped.push(c);
    }
    json!({"text": escaped})
}

/// The metadata of a rule, with a link if the documentation is published.
pub fn of_rule(rule: &Rule, documentation: Option<&DocumentationUrl>) -> Value {
    let level = match rule.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Advice => "note",
    };
    let mut metadata = json!({
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.docs},
        "help": {"text": format!("{}. transom explain {} shows more.", rule.remedy, rule.id)},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["kubernetes", "windows", rule.class.as_str()], "references": rule.see},
    });
    if let Some(documentation) = documentation {
        metadata["helpUri"] = json!(documentation.of_rule(rule));
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;

    #[test]
    fn a_rule_has_a_help_uri_if_its_documentation_is_published() {
        let rule = rules::find("TSM204").unwrap();
        let documentation = DocumentationUrl::parse("https://git.example.com/docs").unwrap();
        let with = of_rule(rule, Some(&documentation));
        assert_eq!(
            with["helpUri"],
            "https://git.example.com/docs/reference/rules.md#tsm204"
        );
        let without = of_rule(rule, None);
        assert_eq!(without.get("helpUri"), None);
        let help = without["help"]["text"].as_str().unwrap();
        assert!(help.ends_with("transom explain TSM204 shows more."), "{help}");
    }
}
