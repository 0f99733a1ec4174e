//! The results of a scan: as text for people, and as JSON and SARIF for machines.

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
/// The errors of the writer.
pub fn scan_json(report: &ScanReport, out: &mut dyn Write) -> io::Result<()> {
    write_json(report, out)
}
