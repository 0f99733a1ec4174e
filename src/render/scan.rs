//! What a scan found: for people as text, for machines as JSON and SARIF.

mod sarif;
mod text;

use std::io::{self, Write};

pub use self::sarif::sarif;
pub use self::text::scan_text;
use crate::scan::report::Report;

/// The report as JSON, on several lines.
///
/// # Errors
/// Whatever the writer says.
pub fn scan_json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}
