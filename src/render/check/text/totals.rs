//! What the text says after the findings: errors, notes, totals, and what would be denied.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::{Display, Write as _};
use std::io;

use anstyle::{AnsiColor, Style};

use super::super::super::text::{BOLD, hang, style_of};
use super::super::{CheckReport, CheckSummary};
use super::{CheckText, is_mild_advice, title, unknown_os_remedy};
use crate::check::{
    CheckOutcome, Checked, ImageCounts, NoteLevel, PolicyChoice, SkippedDocuments, SkippedForWindows,
};
use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::{count, list, one_line};
use crate::rules::{self, Finding};

/// How many objects that would be denied are listed at the end: each is also named after its findings.
const DENIED: usize = 50;
/// How many rules that deny an object are listed.
const RULES: usize = 6;
/// How many skipped kinds are listed.
const KINDS: usize = 20;
/// How many skipped objects for Windows are listed.
const FOR_WINDOWS: usize = 10;
/// How many skipped documents are listed.
const PASSED_OVER: usize = 5;
const PLAIN: Style = Style::new();

/// How many findings a rule has.
#[derive(Clone, Copy, Default)]
struct FindingCount {
    findings: usize,
    objects: usize,
    /// The worst severity of its findings.
    severity: Option<Severity>,
}

impl CheckText<'_> {
    /// Writes the errors, the summary, the policies that applied, and what was skipped.
    pub(super) fn totals(&mut self, report: &CheckReport<'_>) -> io::Result<()> {
        self.outcome(&report.outcome)?;
        if self.options.statistics {
            self.statistics(&report.objects)?;
        }
        self.documentation()?;
        self.summary(report)?;
        if let Some(images) = report.images {
            self.images(images)?;
        }
        self.policies(&report.objects)?;
        self.not_evaluated(report)?;
        self.denied(&report.objects)
    }

    /// Writes a label, and a text that is wrapped after it.
    fn line(&mut self, style: Style, label: &str, text: &str) -> io::Result<()> {
        let space = if label.is_empty() { "" } else { " " };
        let used = label.chars().count() + space.len();
        let text = hang(text, self.options.width, used, 2);
        writeln!(self.out, "{style}{label}{style:#}{space}{text}")
    }

    /// Writes what could not be read, and the notes.
    fn outcome(&mut self, outcome: &CheckOutcome) -> io::Result<()> {
        for error in &outcome.errors {
            let red = AnsiColor::Red.on_default().bold();
            self.line(red, "cannot read", &error.to_string())?;
            writeln!(self.out)?;
        }
        for note in &outcome.notes {
            let style = match note.level {
                NoteLevel::Warning => style_of(Severity::Warning),
                NoteLevel::Note => BOLD,
            };
            let level = note.level.as_str();
            let text = hang(&note.to_string(), self.options.width, level.len() + 2, 2);
            writeln!(self.out, "{style}{level}{style:#}: {text}\n")?;
        }
        Ok(())
    }

    /// Writes the number of findings of each rule, most first.
    fn statistics(&mut self, objects: &[Checked<'_>]) -> io::Result<()> {
        let advice = self.options.advice;
        let is_shown = |finding: &&Finding| advice || !is_mild_advice(finding);
        let mut rules: BTreeMap<&'static str, FindingCount> = BTreeMap::new();
        for checked in objects {
            let mut seen = HashSet::new();
            for finding in checked.evaluation.findings.iter().filter(is_shown) {
                let of_rule = rules.entry(finding.rule.id).or_default();
                of_rule.findings += 1;
                of_rule.objects += usize::from(seen.insert(finding.rule.id));
                of_rule.severity = of_rule.severity.max(Some(finding.severity));
            }
        }
        let mut rows: Vec<_> = rules.into_iter().collect();
        rows.sort_by_key(|(id, of_rule)| (Reverse(of_rule.findings), *id));
        let is_empty = rows.is_empty();
        for (id, of_rule) in rows {
            let (Some(rule), Some(severity)) = (rules::find(id), of_rule.severity) else {
                continue;
            };
            let style = style_of(severity);
            writeln!(
                self.out,
                "{:>6} {style}{:<7}{style:#} {id} {} (in {})",
                of_rule.findings,
                severity.as_str(),
                rule.name,
                count(of_rule.objects, "object")
            )?;
        }
        if is_empty { Ok(()) } else { writeln!(self.out) }
    }

    /// Writes how to read more about the rules, once.
    fn documentation(&mut self) -> io::Result<()> {
        let mut ids = self.documented.iter();
        let Some(first) = ids.next() else {
            return Ok(());
        };
        let mut text = format!("transom explain {first}");
        if ids.len() > 0 {
            let others: Vec<&str> = ids.copied().collect();
            _ = write!(text, " (or {})", others.join(", "));
        }
        self.line(PLAIN, "to read why, with examples:", &text)?;
        writeln!(self.out)
    }

    fn summary(&mut self, report: &CheckReport<'_>) -> io::Result<()> {
        let CheckSummary {
            objects,
            windows,
            unknown,
            denied,
            not_reviewed,
            findings,
            exempted,
            suppressed,
            open: _,
        } = report.summary;
        let skipped: usize = report.not_evaluated.skipped.kinds.values().sum();
        // Not "nothing found", which reads like success.
        if objects + skipped == 0 {
            let why = if report.outcome.errors.is_empty() {
                "the input contains no Kubernetes object"
            } else {
                "the input could not be read"
            };
            return self.line(PLAIN, "", &format!("0 objects checked: {why}"));
        }
        let mut text = format!("{} checked, {windows} for Windows", count(objects, "object"));
        add(&mut text, unknown, |unknown| {
            format!(", {unknown} of unknown operating system")
        });
        text.push_str(": ");
        match (findings, skipped) {
            (0, 0) => text.push_str("nothing found"),
            (0, _) => text.push_str("no findings"),
            _ => text.push_str(&self.severities(&report.objects)),
        }
        add(&mut text, skipped, |skipped| format!(", {skipped} more skipped"));
        add(&mut text, exempted, |exempted| {
            format!(", {exempted} more exempted")
        });
        add(&mut text, suppressed, |suppressed| {
            format!(", {suppressed} suppressed")
        });
        _ = write!(text, "; {denied} would be denied");
        add(&mut text, not_reviewed, |others| {
            format!(", {others} in excluded namespaces")
        });
        self.line(PLAIN, "", &text)?;
        match unknown {
            0 => Ok(()),
            _ => self.line(PLAIN, "unknown:", &unknown_os_remedy("check")),
        }
    }

    /// The number of findings of each severity, and how many of them are not shown or fixed.
    fn severities(&self, objects: &[Checked<'_>]) -> String {
        let ([mut advice, mut warnings, mut errors], mut hidden, mut resolved) = ([0; 3], 0, 0);
        for finding in objects.iter().flat_map(|checked| &checked.evaluation.findings) {
            match finding.severity {
                Severity::Advice => advice += 1,
                Severity::Warning => warnings += 1,
                Severity::Error => errors += 1,
            }
            hidden += usize::from(!self.options.advice && is_mild_advice(finding));
            resolved += usize::from(!finding.is_open());
        }
        let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
        let mut text = format!("{errors}, {warnings}, {advice} advice");
        match hidden {
            0 => {}
            hidden if hidden == advice => text.push_str(" (not shown)"),
            hidden => _ = write!(text, " ({hidden} not shown)"),
        }
        add(&mut text, resolved, |resolved| {
            format!(", {resolved} of them fixed in admission")
        });
        text
    }

    fn images(&mut self, images: ImageCounts) -> io::Result<()> {
        let ImageCounts {
            found,
            missing,
            unknown,
            cached,
        } = images;
        let mut text = format!("images: {found} found");
        add(&mut text, missing, |missing| format!(", {missing} missing"));
        add(&mut text, unknown, |unknown| {
            format!(", {unknown} not known (see the notes)")
        });
        add(&mut text, cached, |cached| format!("; {cached} from the cache"));
        self.line(PLAIN, "", &text)
    }

    /// Writes the policies that applied, with the number of objects with pods.
    fn policies(&mut self, objects: &[Checked<'_>]) -> io::Result<()> {
        let mut choices: BTreeMap<&PolicyChoice, usize> = BTreeMap::new();
        let reviewed = objects.iter().filter(|checked| checked.not_reviewed.is_none());
        for checked in reviewed.filter(|checked| checked.kind.has_pod()) {
            *choices.entry(&checked.choice).or_default() += 1;
        }
        let is_only = choices.len() == 1;
        for (choice, objects) in choices {
            let PolicyChoice {
                policy,
                validation,
                placement,
                why,
            } = choice;
            let of = if is_only {
                String::new()
            } else {
                format!(", for {}", count(objects, "object"))
            };
            let text = format!("{policy} (validation {validation}, placement {placement}){of}: {why}");
            self.line(PLAIN, "policy:", &text)?;
        }
        Ok(())
    }

    fn not_evaluated(&mut self, report: &CheckReport<'_>) -> io::Result<()> {
        let SkippedDocuments { kinds, for_windows } = &report.not_evaluated.skipped;
        if !kinds.is_empty() {
            let all: usize = kinds.values().sum();
            let kinds = kinds.iter().map(|(kind, count)| format!("{kind} {count}"));
            let kinds = list(kinds, KINDS);
            let mut text =
                format!("{all} ({kinds}): admission evaluates the objects that their controllers create");
            text.push_str(&unknown_pods(for_windows));
            self.line(PLAIN, "skipped:", &text)?;
        }
        let others = &report.not_evaluated.other_documents;
        if !others.is_empty() {
            let (all, places) = (others.len(), list(others, PASSED_OVER));
            let text = format!("{all} that are not Kubernetes objects ({places})");
            self.line(PLAIN, "ignored:", &text)?;
        }
        let errors = report.outcome.errors.len();
        if errors > 0 {
            writeln!(
                self.out,
                "{} of the input could not be read",
                count(errors, "part")
            )?;
        }
        if !report.configurations.is_empty() {
            self.line(PLAIN, "configuration:", &report.configurations.join(", "))?;
        }
        Ok(())
    }

    /// Writes what would be denied: the objects that only suppressed findings deny, and the others by owner, with the rules.
    fn denied(&mut self, objects: &[Checked<'_>]) -> io::Result<()> {
        let suppressed = objects.iter().filter(|checked| checked.not_reviewed.is_none());
        let suppressed = suppressed.filter(|checked| checked.is_denial_suppressed());
        let suppressed: Vec<String> = suppressed
            .map(|checked| format!("{} {}", checked.kind, title(checked)))
            .collect();
        if !suppressed.is_empty() {
            let objects = list(&suppressed, KINDS);
            let text = format!("{objects}: admission does not know suppressions");
            self.line(BOLD, "still denied by admission:", &text)?;
        }
        let mut denied: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for checked in objects.iter().filter(|checked| checked.is_denied()) {
            let rules = checked.evaluation.denials().map(|finding| finding.rule.name);
            denied.entry(owner_of(checked)).or_default().extend(rules);
        }
        if !denied.is_empty() {
            writeln!(self.out, "{BOLD}would be denied:{BOLD:#}")?;
        }
        for (owner, rules) in denied.iter().take(DENIED) {
            let text = format!("{owner}: {}", list(rules, RULES));
            writeln!(self.out, "  {}", hang(&text, self.options.width, 2, 4))?;
        }
        match denied.len().checked_sub(DENIED) {
            Some(more @ 1..) => writeln!(self.out, "  and {more} more"),
            _ => Ok(()),
        }
    }
}

/// Adds a part to a text if there is something to count.
fn add<T: Display>(text: &mut String, count: usize, part: impl FnOnce(usize) -> T) {
    if count > 0 {
        _ = write!(text, "{}", part(count));
    }
}

/// The object that people would fix.
fn owner_of(checked: &Checked<'_>) -> String {
    match &checked.owner {
        Some(owner) if checked.namespace.is_empty() => one_line(owner).into_owned(),
        Some(owner) => {
            let (kind, name) = owner.split_once(' ').unwrap_or(("", owner));
            one_line(&format!("{kind} {}/{name}", checked.namespace)).into_owned()
        }
        None => format!("{} {}", checked.kind, title(checked)),
    }
}

/// Which skipped objects select Windows nodes, and how their pods are evaluated; empty if there are none.
fn unknown_pods(objects: &[SkippedForWindows]) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let titles = objects.iter().map(|object| {
        let SkippedForWindows {
            kind,
            name,
            source,
            line,
            ..
        } = object;
        let title = format!("{kind} {name}");
        format!("{} ({source}:{line})", title.trim_end())
    });
    let kinds: BTreeSet<&str> = objects
        .iter()
        .map(|object| object.pod_template.as_str())
        .collect();
    let is_path_unknown = kinds.iter().any(|kind| kind.ends_with("=PATH"));
    let entries = kinds.iter().filter_map(|kind| {
        let (of, path) = kind.split_once('=')?;
        let (group, kind) = of.rsplit_once('/')?;
        Some(format!("{{group: {group}, kind: {kind}, path: {path}}}"))
    });
    let mut text = format!(
        ". These select Windows nodes: {}. To evaluate their pods, add to cluster.podTemplates in .transom.yaml: {}",
        list(titles, FOR_WINDOWS),
        list(entries, FOR_WINDOWS)
    );
    if is_path_unknown {
        text.push_str(
            ", where PATH is the field with a pod template or a pod spec; if there is none, check the objects that their \
             controllers create",
        );
    }
    text
}
