//! Reads the file of a baseline.

use std::path::Path;

use transom_core::check::{BASELINE_SCHEMA, Baseline, BaselineFile, unknown_rule};

use super::document_file::{self, DocumentFileError};
use crate::manifest::NodeStep;
use crate::rules;

/// Reads a baseline.
///
/// # Errors
/// Every problem of the file, one line each.
pub fn read_baseline(file: &Path) -> Result<Baseline, DocumentFileError> {
    const WHAT: &str = "baseline (--baseline)";
    let mut read = document_file::read::<BaselineFile>(file, WHAT)?;
    if read.content.schema != BASELINE_SCHEMA {
        let message = format!(
            "schema: there is no schema \"{}\"; did you mean {BASELINE_SCHEMA}?",
            read.content.schema
        );
        read.problem(&[NodeStep::Key("schema")], &message);
    }
    let mut unknown = Vec::new();
    for (index, entry) in read.content.findings.iter().enumerate() {
        if rules::find(&entry.rule).is_none_or(|rule| rule.name != entry.rule) {
            unknown.push((index, unknown_rule(&entry.rule)));
        }
    }
    for (index, message) in unknown {
        let path = [
            NodeStep::Key("findings"),
            NodeStep::Index(index),
            NodeStep::Key("rule"),
        ];
        read.problem(&path, &format!("findings[{index}].rule: {message}"));
    }
    Ok(Baseline::new(file.display().to_string(), read.finish()?.findings))
}
