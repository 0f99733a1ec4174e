//! What the texts of commands share: styles, and lines that fit a terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::{one_line, wrap};

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const BLUE: Style = AnsiColor::Blue.on_default().bold();

/// The display style of a severity.
pub(super) fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Error => AnsiColor::Red.on_default().bold(),
        Severity::Warning => AnsiColor::Yellow.on_default().bold(),
        Severity::Advice => AnsiColor::Cyan.on_default().bold(),
    }
}

/// Writes a text below a finding, as in `  = field: spec.os`.
pub(super) fn labelled(out: &mut dyn Write, indent: usize, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{:indent$}{BLUE}={BLUE:#} {label} {}", "", one_line(text))
}

/// Writes a remedy below a finding.
pub(super) fn help(out: &mut dyn Write, indent: usize, remedy: &str) -> io::Result<()> {
    labelled(out, indent, &format!("{BOLD}help:{BOLD:#}"), remedy)
}

/// A text as one line, or as lines of at most `width` characters. The first one follows `used` characters, and the others
/// are indented.
pub(super) fn hang(text: &str, width: Option<usize>, used: usize, indent: usize) -> String {
    /// Narrower columns are harder to read than lines that the terminal breaks.
    const NARROWEST: usize = 20;
    let text = one_line(text);
    let Some(width) = width.filter(|width| *width >= indent + NARROWEST) else {
        return text.into_owned();
    };
    // The placeholder stands for what the first line follows; it is one word, so that it is not broken.
    let filled = format!("{} {text}", "x".repeat(used.saturating_sub(indent + 1).max(1)));
    let wrapped = wrap(&filled, width - indent);
    let indented = |text: &str| text.replace('\n', &format!("\n{:indent$}", ""));
    match wrapped.split_once([' ', '\n']) {
        // The line is full already.
        Some((placeholder, rest))
            if wrapped
                .get(placeholder.len()..)
                .is_some_and(|it| it.starts_with('\n')) =>
        {
            format!("\n{:indent$}{}", "", indented(rest))
        }
        Some((_, rest)) => indented(rest),
        None => String::new(),
    }
}
