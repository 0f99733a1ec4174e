//! JSON for where people and CI systems read along: nothing in a text of it does more than stand there.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::text::plain_json;

/// Writes a document on several lines, and ends the last one.
///
/// # Errors
/// Whatever the writer says.
pub fn write_json(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string_pretty(document)?;
    writeln!(out, "{}", plain_json(&json))
}
