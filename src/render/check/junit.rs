//! A check as JUnit XML: a test suite per file, and a test case per object, which fails if admission would
//! deny it.

use std::io::{self, Write};

use askama::Template;

use super::{CheckReport, sentence, title};
use crate::check::Checked;
use crate::model::cluster::policy::Action;
use crate::model::syntax::text::{count, one_line};

/// The document. The template escapes every value.
#[derive(Template)]
#[template(path = "junit.xml")]
pub(in crate::render) struct JunitDocument {
    /// The command.
    name: &'static str,
    suites: Vec<Suite>,
}

struct Suite {
    name: String,
    cases: Vec<JunitCase>,
    /// The notes about the file.
    notes: Vec<String>,
}

#[derive(Default)]
pub(in crate::render) struct JunitCase {
    pub(in crate::render) name: String,
    pub(in crate::render) line: usize,
    pub(in crate::render) failure: Option<JunitFailure>,
    pub(in crate::render) error: Option<String>,
    /// Why the case is skipped.
    pub(in crate::render) skipped: Option<String>,
    /// The findings that do not deny.
    pub(in crate::render) output: Vec<String>,
}

pub(in crate::render) struct JunitFailure {
    pub(in crate::render) kind: &'static str,
    pub(in crate::render) message: String,
    pub(in crate::render) lines: Vec<String>,
}

impl Suite {
    fn failures(&self) -> usize {
        self.cases.iter().filter(|case| case.failure.is_some()).count()
    }

    fn errors(&self) -> usize {
        self.cases.iter().filter(|case| case.error.is_some()).count()
    }

    fn skipped(&self) -> usize {
        self.cases.iter().filter(|case| case.skipped.is_some()).count()
    }
}

impl JunitDocument {
    /// A document without suites.
    pub(in crate::render) fn new(name: &'static str) -> Self {
        JunitDocument {
            name,
            suites: Vec::new(),
        }
    }

    /// Adds a case to the suite of a file.
    pub(in crate::render) fn add(&mut self, source: &str, case: JunitCase) {
        if let Some(suite) = self.suite(source) {
            suite.cases.push(case);
        }
    }

    pub(in crate::render) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let xml = self.render().map_err(io::Error::other)?;
        out.write_all(xml.as_bytes())?;
        writeln!(out)
    }

    fn suite(&mut self, source: &str) -> Option<&mut Suite> {
        let name = text(source);
        let known = self.suites.iter().position(|suite| suite.name == name);
        let at = known.unwrap_or_else(|| {
            self.suites.push(Suite {
                name,
                cases: Vec::new(),
                notes: Vec::new(),
            });
            self.suites.len() - 1
        });
        self.suites.get_mut(at)
    }

    fn tests(&self) -> usize {
        self.suites.iter().map(|suite| suite.cases.len()).sum()
    }

    fn failures(&self) -> usize {
        self.suites.iter().map(Suite::failures).sum()
    }

    fn errors(&self) -> usize {
        self.suites.iter().map(Suite::errors).sum()
    }

    fn skipped(&self) -> usize {
        self.suites.iter().map(Suite::skipped).sum()
    }
}

/// Writes the report as JUnit XML.
///
/// # Errors
/// The errors of the writer.
pub fn check_junit(report: &CheckReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut document = JunitDocument::new("transom check");
    for error in &report.outcome.errors {
        let case = JunitCase {
            name: match error.line {
                0 => "cannot be read".to_owned(),
                line => format!("line {line} cannot be read"),
            },
            line: error.line,
            error: Some(text(&error.message)),
            ..JunitCase::default()
        };
        document.add(&error.source, case);
    }
    for note in &report.outcome.notes {
        let level = note.level.as_str();
        let line = match (note.line, note.column) {
            (0, _) => String::new(),
            (line, 0) => format!("line {line}: "),
            (line, column) => format!("line {line}, column {column}: "),
        };
        if let Some(suite) = document.suite(&note.source) {
            suite
                .notes
                .push(text(&format!("{level}: {line}{}", note.message)));
        }
    }
    for checked in &report.objects {
        document.add(checked.source, case(checked));
    }
    document.write(out)
}

fn case(checked: &Checked<'_>) -> JunitCase {
    let lines = checked.open().map(|(finding, _)| {
        let rule = finding.rule;
        text(&format!("{} [{} {}]", sentence(finding), rule.id, rule.name))
    });
    let lines: Vec<String> = lines.collect();
    let (failure, output) = if checked.is_denied() && checked.not_reviewed.is_none() {
        let message = format!("would be denied: {}", count(lines.len(), "problem"));
        let kind = "denied";
        (Some(JunitFailure { kind, message, lines }), Vec::new())
    } else {
        (None, lines)
    };
    let suppressed = checked.suppressed.iter();
    let suppressed = suppressed.filter(|it| it.finding.effect() == Action::Deny);
    let skipped = match suppressed.count() {
        count @ 1.. if failure.is_none() => Some(format!("{count} suppressed; admission would deny it")),
        _ => None,
    };
    JunitCase {
        name: text(&title(checked)),
        line: checked.document.start().line,
        failure,
        error: None,
        skipped,
        output,
    }
}

/// One line, limited to the characters that XML 1.0 allows.
pub(in crate::render) fn text(text: &str) -> String {
    one_line(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
