//! A check as JUnit XML: a test suite per file, and a test case per object, which fails if admission would
//! deny it.

use std::io::{self, Write};

use askama::Template;

use super::super::json::{Json, JsonObject};
use crate::check::UnreadableInput;
use crate::model::text::one_line;

/// The document. The template escapes every value.
#[derive(Template)]
#[template(path = "junit.xml")]
struct Document {
    suites: Vec<Suite>,
}

struct Suite {
    name: String,
    cases: Vec<Case>,
}

struct Case {
    name: String,
    line: usize,
    failure: Option<Failure>,
    error: Option<String>,
    /// The findings that do not deny.
    output: Vec<String>,
}

struct Failure {
    message: String,
    lines: Vec<String>,
}

impl Suite {
    fn failures(&self) -> usize {
        self.cases.iter().filter(|case| case.failure.is_some()).count()
    }

    fn errors(&self) -> usize {
        self.cases.iter().filter(|case| case.error.is_some()).count()
    }
}

impl Document {
    fn suite(&mut self, source: &str) -> Option<&mut Suite> {
        let name = text(source);
        let known = self.suites.iter().position(|suite| suite.name == name);
        let at = known.unwrap_or_else(|| {
            self.suites.push(Suite {
                name,
                cases: Vec::new(),
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
}

/// Writes the report as JUnit XML.
///
/// # Errors
/// The errors of the writer.
pub fn check_junit(report: &Json, errors: &[UnreadableInput], out: &mut dyn Write) -> io::Result<()> {
    let mut document = Document { suites: Vec::new() };
    for error in errors {
        let case = Case {
            name: match error.line {
                0 => "cannot be read".to_owned(),
                line => format!("line {line} cannot be read"),
            },
            line: error.line,
            failure: None,
            error: Some(text(&error.message)),
            output: Vec::new(),
        };
        if let Some(suite) = document.suite(&error.source) {
            suite.cases.push(case);
        }
    }
    for subject in &report.subjects {
        if let Some(suite) = document.suite(&subject.source) {
            suite.cases.push(case(subject));
        }
    }
    let xml = document.render().map_err(io::Error::other)?;
    out.write_all(xml.as_bytes())?;
    writeln!(out)
}

fn case(subject: &JsonObject) -> Case {
    let lines = subject
        .open()
        .map(|found| text(&format!("{} [{} {}]", found.sentence(), found.id, found.rule)));
    let lines: Vec<String> = lines.collect();
    let problems = if lines.len() == 1 { "problem" } else { "problems" };
    let (failure, output) = if subject.is_denied() {
        let message = format!("would be denied: {} {problems}", lines.len());
        (Some(Failure { message, lines }), Vec::new())
    } else {
        (None, lines)
    };
    Case {
        name: text(&subject.title()),
        line: subject.line,
        failure,
        error: None,
        output,
    }
}

/// One line, limited to the characters that XML 1.0 allows.
fn text(text: &str) -> String {
    one_line(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
