//! JSON for terminals and CI logs: control sequences in its strings are escaped.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::syntax::text::plain_json;

/// Writes a document on several lines, with a final line end.
///
/// # Errors
/// The errors of the writer.
pub fn write_json(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string_pretty(document)?;
    writeln!(out, "{}", plain_json(&json))
}
