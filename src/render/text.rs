//! The report for people: every finding with the line that it is about, like a good compiler.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::Summary;
use crate::check::{Checked, Unreadable};
use crate::engine::Decision;
use crate::manifest::Position;
use crate::model::os::Verdict;
use crate::model::severity::Severity;
use crate::model::text::{list, one_line};
use crate::rules::{Finding, Resolver};

const BOLD: Style = Style::new().bold();
const BLUE: Style = AnsiColor::Blue.on_default().bold();
/// How much of a source line is shown, in characters.
const WIDTH: usize = 120;
/// How many kinds that were skipped are named.
const KINDS: usize = 20;

/// Writes findings as they come, and a summary at the end.
pub struct TextReport<W> {
    out: W,
    summary: Summary,
    severities: [usize; 3],
    resolved: usize,
    /// Whether findings that are advice only are counted and not shown.
    quiet_advice: bool,
}

impl<W: Write> TextReport<W> {
    /// A report that goes to a writer; `advice` shows findings that are advice only.
    pub fn new(out: W, advice: bool) -> Self {
        TextReport {
            out,
            summary: Summary::default(),
            severities: [0; 3],
            resolved: 0,
            quiet_advice: !advice,
        }
    }

    /// Writes what was found in one object.
    ///
    /// # Errors
    /// Whatever the writer says.
    pub fn add(&mut self, checked: &Checked<'_>) -> io::Result<()> {
        self.summary.count(checked);
        let mut places = checked.places();
        for finding in &checked.inspection.findings {
            self.severities[finding.severity as usize] += 1;
            self.resolved += usize::from(!finding.is_open());
            if finding.severity > Severity::Advice || !self.quiet_advice {
                self.finding(checked, finding, places.of(&finding.path))?;
            }
        }
        let (name, kind) = (title(checked), checked.kind);
        if checked.inspection.decision() == Decision::Deny {
            writeln!(self.out, "{BOLD}{kind} {name} would be denied{BOLD:#}\n")?;
        } else if let Some(owner) = &checked.owner
            && checked
                .inspection
                .of_the_owner()
                .any(|finding| finding.severity == Severity::Error)
        {
            let owner = one_line(owner);
            writeln!(
                self.out,
                "{BOLD}{kind} {name} would pass{BOLD:#}: the controller of its owner is assumed to make it; mend {owner}\n"
            )?;
        }
        Ok(())
    }

    fn finding(&mut self, checked: &Checked<'_>, finding: &Finding, position: Position) -> io::Result<()> {
        let style = match finding.severity {
            Severity::Error => AnsiColor::Red.on_default().bold(),
            Severity::Warning => AnsiColor::Yellow.on_default().bold(),
            Severity::Advice => AnsiColor::Cyan.on_default().bold(),
        };
        let out = &mut self.out;
        let (rule, severity) = (finding.rule, finding.severity);
        writeln!(
            out,
            "{style}{severity}[{} {}]{style:#}{BOLD}: {}{BOLD:#}",
            rule.id, rule.name, finding.message
        )?;
        let gutter = position.line.to_string().len();
        let place = format!("{}:{}:{}", checked.source, position.line, position.column);
        writeln!(
            out,
            "{:gutter$}{BLUE}-->{BLUE:#} {place} ({} {})",
            "",
            checked.kind,
            title(checked)
        )?;
        if let Some(line) = checked.text.and_then(|text| text.line(position.line)) {
            let (shown, caret) = window(&line, position.column);
            let length = shown
                .chars()
                .skip(caret)
                .take_while(|c| !matches!(c, ':' | ' ' | ',' | '}' | ']'))
                .count();
            writeln!(out, "{:gutter$} {BLUE}|{BLUE:#}", "")?;
            writeln!(out, "{BLUE}{} |{BLUE:#} {shown}", position.line)?;
            let carets = "^".repeat(length.max(1));
            writeln!(
                out,
                "{:gutter$} {BLUE}|{BLUE:#} {:caret$}{style}{carets}{style:#}",
                "", ""
            )?;
        }
        writeln!(out, "{:gutter$} {BLUE}={BLUE:#} field: {}", "", finding.path)?;
        writeln!(
            out,
            "{:gutter$} {BLUE}={BLUE:#} {BOLD}help:{BOLD:#} {}",
            "", finding.remedy
        )?;
        match finding.resolved_by {
            Some(Resolver::Placement) => writeln!(
                out,
                "{:gutter$} {BLUE}={BLUE:#} note: placement mends this in admission",
                ""
            )?,
            Some(Resolver::Repair) => writeln!(
                out,
                "{:gutter$} {BLUE}={BLUE:#} note: repair takes this out in admission",
                ""
            )?,
            None => {}
        }
        writeln!(out)
    }

    /// Writes the errors, the summary, and what was skipped.
    ///
    /// # Errors
    /// Whatever the writer says.
    pub fn finish(
        &mut self,
        errors: &[Unreadable],
        skipped: &BTreeMap<String, usize>,
    ) -> io::Result<Summary> {
        let red = AnsiColor::Red.on_default().bold();
        for error in errors {
            let at = if error.line == 0 {
                String::new()
            } else {
                format!(":{}", error.line)
            };
            writeln!(
                self.out,
                "{red}cannot read{red:#} {}{at}: {}\n",
                error.source, error.message
            )?;
        }
        let Summary {
            subjects,
            windows,
            denied,
            findings,
        } = self.summary;
        let [advice, warnings, problems] = self.severities;
        write!(
            self.out,
            "{} checked, {windows} for Windows: ",
            count(subjects, "object")
        )?;
        if findings == 0 {
            write!(self.out, "nothing found")?;
        } else {
            let (problems, warnings) = (count(problems, "error"), count(warnings, "warning"));
            write!(self.out, "{problems}, {warnings}, {advice} advice")?;
            if advice > 0 && self.quiet_advice {
                write!(self.out, " (not shown)")?;
            }
            if self.resolved > 0 {
                write!(self.out, ", {} of them mended in admission", self.resolved)?;
            }
        }
        writeln!(self.out, "; {denied} would be denied")?;
        if !skipped.is_empty() {
            let all: usize = skipped.values().sum();
            let kinds = skipped.iter().map(|(kind, count)| format!("{kind} {count}"));
            let kinds = list(kinds, KINDS);
            let kinds = one_line(&kinds);
            writeln!(
                self.out,
                "skipped: {all} ({kinds}): admission judges what their controllers make"
            )?;
        }
        if !errors.is_empty() {
            writeln!(
                self.out,
                "{} could not be read",
                count(errors.len(), "part of the input")
            )?;
        }
        Ok(self.summary)
    }
}

fn title(checked: &Checked<'_>) -> String {
    let name = if checked.name.is_empty() {
        "(no name)"
    } else {
        &checked.name
    };
    let conflicting = checked.inspection.inference.verdict == Verdict::Conflicting;
    let suffix = if conflicting { ", Windows or Linux" } else { "" };
    if checked.namespace.is_empty() {
        format!("{name}{suffix}")
    } else {
        format!("{}/{name}{suffix}", checked.namespace)
    }
}

fn count(n: usize, what: &str) -> String {
    match (n, what.strip_prefix("part")) {
        (1, _) => format!("1 {what}"),
        (n, Some(rest)) => format!("{n} parts{rest}"),
        (n, None) => format!("{n} {what}s"),
    }
}

/// The part of a line around a column, without control characters, and where the column is in it.
fn window(line: &str, column: usize) -> (String, usize) {
    let at = column.saturating_sub(1);
    let line = one_line(line);
    if line.chars().nth(WIDTH).is_none() {
        return (line.into_owned(), at);
    }
    let start = at.saturating_sub(WIDTH / 3);
    let shown: String = line.chars().skip(start).take(WIDTH).collect();
    if start == 0 {
        (format!("{shown}…"), at)
    } else {
        (format!("…{shown}…"), at - start + 1)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::{TextReport, window};
    use crate::check::{Input, Manifests};
    use crate::engine::effective::PolicySet;
    use crate::model::facts::Facts;
    use crate::model::policy::Policy;
    use crate::model::subject::Stage;

    #[test]
    fn the_report_says_what_is_left_to_an_owner_and_what_was_skipped() {
        let spec = "{template: {spec: {nodeSelector: {kubernetes.io/os: windows}, hostPID: true, containers: \
                    [{name: a, image: a}]}}}";
        let text = format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web-1, ownerReferences: [{{apiVersion: apps/v1, \
             kind: Deployment, name: web, controller: true}}]}}, spec: {spec}}}\n---\n\
             {{apiVersion: argoproj.io/v1alpha1, kind: Rollout, spec: {spec}}}\n"
        );
        let manifests = Manifests::parse(vec![Input {
            source: "-".to_owned(),
            bytes: text.into_bytes(),
        }]);
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let mut out = Vec::new();
        let mut report = TextReport::new(&mut out, false);
        let errors = manifests.check(&facts, &policies, Stage::Written, |checked| {
            report.add(&checked).unwrap();
        });
        report.finish(&errors, &manifests.skipped()).unwrap();
        let printed = anstream::adapter::strip_bytes(&out).into_vec();
        let printed = String::from_utf8(printed).unwrap();
        for line in [
            "ReplicaSet web-1 would pass: the controller of its owner is assumed to make it; mend Deployment web\n",
            "; 0 would be denied\nskipped: 1 (Rollout 1): admission judges what their controllers make\n",
        ] {
            assert!(printed.contains(line), "{printed}");
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_field() {
        let line = format!("{}field{}", "a".repeat(1000), "b".repeat(1000));
        let (shown, caret) = window(&line, 1001);
        assert_eq!(shown.chars().skip(caret).take(5).collect::<String>(), "field");
        assert!(shown.chars().count() <= 122);
        assert_eq!(window("\tshort", 2), (" short".to_owned(), 1));
    }
}
