//! What a scan found: for people as text, for machines as JSON and SARIF.

mod sarif;
mod text;

use std::io::{self, Write};

pub use self::sarif::scan_sarif;
pub use self::text::{ScanView, scan_text};
use super::plain::write_json;
use crate::scan::report::ScanReport;

/// The report as JSON, on several lines.
///
/// # Errors
/// Whatever the writer says.
pub fn scan_json(report: &ScanReport, out: &mut dyn Write) -> io::Result<()> {
    write_json(report, out)
}
