//! The report as text: the totals first, the values last.

use std::io::{self, Write};

use super::{FindingStatus, Preflight, PreflightFinding};
use crate::model::syntax::text::{count, list, one_line};

/// How many workloads that would be denied are listed.
const MOST_DENIED: usize = 30;

/// How many gaps are listed.
const MOST_GAPS: usize = 30;

/// The maximum length of a line.
const WIDTH: usize = 110;

/// Writes the report.
///
/// # Errors
/// The errors of `out`.
pub fn write(report: &Preflight, out: &mut dyn Write) -> io::Result<()> {
    for line in first(report) {
        wrapped(out, "", &line)?;
    }
    for section in &report.sections {
        writeln!(out, "\n{}", section.title)?;
        // Findings that need an action come first.
        let mut findings: Vec<&PreflightFinding> = section.findings.iter().collect();
        findings.sort_by_key(|finding| finding.status == FindingStatus::Ok);
        for finding in findings {
            write_finding(out, finding)?;
            if finding.lists_denied {
                denied(report, out)?;
            }
        }
    }
    if !report.gaps.is_empty() {
        writeln!(out, "\nNot read")?;
        for gap in report.gaps.iter().take(MOST_GAPS) {
            wrapped(out, "  - ", &gap.to_string())?;
        }
        if let Some(more) = report.gaps.len().checked_sub(MOST_GAPS).filter(|more| *more > 0) {
            writeln!(out, "  - and {more} more")?;
        }
    }
    writeln!(out, "\nValues\n")?;
    out.write_all(report.values.yaml().as_bytes())
}

fn first(report: &Preflight) -> Vec<String> {
    let summary = &report.summary;
    let mut lines = vec![verdict(report)];
    if summary.patched > 0 {
        lines.push(format!(
            "Placement would change the pods of {} more that would pass; they continue to run unchanged until they are created again.",
            summary.patched
        ));
    }
    let acts = report.sections.iter().flat_map(|section| &section.findings);
    let acts = acts
        .filter(|finding| finding.status == FindingStatus::ActionRequired)
        .count();
    if acts > 0 {
        lines.push(format!(
            "{} to be done; marked with ! below.",
            count(acts, "thing")
        ));
    }
    if !report.gaps.is_empty() {
        lines.push(format!(
            "{} could not be read, see Not read.",
            count(report.gaps.len(), "thing")
        ));
    }
    lines
}

/// Whether anything would be denied, and how to install.
fn verdict(report: &Preflight) -> String {
    let summary = &report.summary;
    let has_unlisted = !summary.not_listed.is_empty();
    if summary.denied == 0 && has_unlisted {
        return "Not known whether anything would be denied: workloads could not be read.".to_owned();
    }
    if summary.denied == 0 && !report.is_known {
        return "Not known whether anything would be denied: some of what this depends on could not be read."
            .to_owned();
    }
    if summary.denied == 0 {
        let windows = count(summary.windows, "workload");
        return format!("None of {windows} for Windows would be denied; install with the values below.");
    }
    let only_ignored_fields = match summary.denied_only_for_ignored_fields {
        0 => String::new(),
        all if all == summary.denied => ", all of them only for fields that Windows ignores".to_owned(),
        some => format!(", {some} of them only for fields that Windows ignores"),
    };
    let more = if has_unlisted {
        ", and more may be of those that could not be read"
    } else {
        ""
    };
    let stored = match summary.windows {
        1 => "1 is".to_owned(),
        all => format!("{all} are"),
    };
    let install = if report.enforces() {
        "Install with the values below, which warn of these fields."
    } else {
        "Install with mode: Audit."
    };
    format!(
        "{} would be denied{only_ignored_fields}{more}; {stored} stored for Windows. {install}",
        count(summary.denied, "workload")
    )
}

fn write_finding(out: &mut dyn Write, finding: &PreflightFinding) -> io::Result<()> {
    let mark = match finding.status {
        FindingStatus::ActionRequired => "  ! ",
        FindingStatus::Ok => "  - ",
    };
    wrapped(out, mark, &finding.message)?;
    if !finding.evidence.is_empty() {
        wrapped(out, "    seen: ", &finding.evidence.join(", "))?;
    }
    if let Some(remedy) = &finding.remedy {
        let label = if finding.status == FindingStatus::ActionRequired {
            "do"
        } else {
            "see"
        };
        wrapped(out, &format!("    {label}: "), remedy)?;
    }
    Ok(())
}

fn denied(report: &Preflight, out: &mut dyn Write) -> io::Result<()> {
    for owner in report.denied.iter().take(MOST_DENIED) {
        let warned = if owner.is_only_ignored_fields {
            " (a warning with ignoredFields: Warn)"
        } else {
            ""
        };
        wrapped(
            out,
            "    ",
            &format!("{}: {}{warned}", owner.title(), list(&owner.rules, 10)),
        )?;
    }
    let more = report.summary.denied.saturating_sub(MOST_DENIED);
    if more > 0 {
        let all = match report.denied.len() {
            named if named < report.summary.denied => format!("{named} of them"),
            _ => "all of them".to_owned(),
        };
        writeln!(out, "    and {more} more; -o json names {all}")?;
    }
    Ok(())
}

/// A text wrapped to [`WIDTH`], with a hanging indent.
fn wrapped(out: &mut dyn Write, mark: &str, text: &str) -> io::Result<()> {
    let text = one_line(text);
    let inner = " ".repeat(mark.len().min(6));
    let mut line = mark.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line.clone_from(&inner);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(out, "{line}")
}
