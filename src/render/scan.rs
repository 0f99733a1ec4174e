//! The results of a scan: as text for people, and as JSON and SARIF for machines.

mod changes;
mod sarif;
mod text;
mod view;

use std::io::{self, Write};

pub use self::sarif::scan_sarif;
pub use self::text::scan_text;
pub use self::view::ScanView;
use super::plain::write_json;
use crate::scan::report::ScanReport;

/// The report as JSON, on several lines.
///
/// # Errors
/// The errors of the writer.
pub fn scan_json(report: &ScanReport, out: &mut dyn Write) -> io::Result<()> {
    write_json(report, out)
}
