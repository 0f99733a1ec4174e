//! A check as workflow commands of GitHub Actions, which show findings at the lines of a pull request.
//!
//! Source: GitHub, Workflow commands for GitHub Actions; the escapes are those of its toolkit (`@actions/core`).

use std::io::{self, Write};

use super::{CheckReport, Level, level, sentence, title};
use crate::check::NoteLevel;
use crate::model::syntax::text::one_line;

/// Writes a command for each open finding, each note and each unreadable input.
///
/// # Errors
/// The errors of the writer.
pub fn check_github(report: &CheckReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let file = |source: &str| property(&report.repository.path(source));
    for error in &report.outcome.errors {
        let (file, message) = (file(&error.source), data(&error.message));
        match error.line {
            0 => writeln!(out, "::error file={file},title=transom::{message}")?,
            line => writeln!(out, "::error file={file},line={line},title=transom::{message}")?,
        }
    }
    for note in &report.outcome.notes {
        let command = match note.level {
            NoteLevel::Warning => "warning",
            NoteLevel::Note => "notice",
        };
        let (file, message) = (file(&note.source), data(&note.message));
        let column = match note.column {
            0 => String::new(),
            column => format!(",col={column}"),
        };
        let line = note.line.max(1);
        writeln!(
            out,
            "::{command} file={file},line={line}{column},title=transom::{message}"
        )?;
    }
    for checked in &report.objects {
        let file = file(checked.source);
        for (finding, detail) in checked.open() {
            let command = match level(checked, finding) {
                Level::Error => "error",
                Level::Warning => "warning",
                Level::Note => "notice",
            };
            writeln!(
                out,
                "::{command} file={file},line={},col={},title={}::{}",
                detail.position.line,
                detail.position.column,
                property(&format!("{} {}", finding.rule.id, finding.rule.name)),
                data(&format!("{}: {}", title(checked), sentence(finding)))
            )?;
        }
    }
    Ok(())
}

/// The message of a command.
fn data(text: &str) -> String {
    // Percent signs first, so that no escape is escaped twice. `one_line` has already replaced line ends.
    one_line(text).replace('%', "%25")
}

/// The value of a property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
