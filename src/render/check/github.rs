//! A check as workflow commands of GitHub Actions, which show findings at the lines of a pull request.
//!
//! Source: GitHub, Workflow commands for GitHub Actions; the escapes are those of its toolkit (`@actions/core`).

use std::io::{self, Write};

use super::super::json::Json;
use super::Level;
use crate::check::{CheckOutcome, NoteLevel};
use crate::model::text::one_line;

/// Writes a command for each open finding, each note and each unreadable input.
///
/// # Errors
/// The errors of the writer.
pub fn check_github(report: &Json, outcome: &CheckOutcome, out: &mut dyn Write) -> io::Result<()> {
    let file = |source: &str| property(&report.repository.path(source));
    for error in &outcome.errors {
        let (file, message) = (file(&error.source), data(&error.message));
        match error.line {
            0 => writeln!(out, "::error file={file},title=transom::{message}")?,
            line => writeln!(out, "::error file={file},line={line},title=transom::{message}")?,
        }
    }
    for note in &outcome.notes {
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
    for subject in &report.objects {
        let file = file(&subject.source);
        for found in subject.open() {
            let command = match subject.level(found) {
                Level::Error => "error",
                Level::Warning => "warning",
                Level::Note => "notice",
            };
            writeln!(
                out,
                "::{command} file={file},line={},col={},title={}::{}",
                found.line,
                found.column,
                property(&format!("{} {}", found.id, found.rule)),
                data(&format!("{}: {}", subject.title(), found.sentence()))
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
