//! The report of a check as text: every finding with its source line, like a compiler error.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::{CheckSummary, NotEvaluated};
use crate::check::{CheckOutcome, Checked, ImageCounts, NoteLevel, PolicyChoice, SourceLines};
use crate::engine::Decision;
use crate::manifest::Position;
use crate::model::os::Verdict;
use crate::model::path::Segment;
use crate::model::pod::ContainerList;
use crate::model::policy::Action;
use crate::model::severity::Severity;
use crate::model::text::{count, list, one_line, wrap};
use crate::rules::{self, Finding, Resolver};

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const BLUE: Style = AnsiColor::Blue.on_default().bold();
/// How much of a source line is shown if lines are not wrapped, in characters.
const WIDTH: usize = 120;
/// How many findings of one rule with the same effect are shown with an excerpt. Each of the others is one line.
const IN_FULL: usize = 3;
/// How many further containers of a finding are named.
const CONTAINERS: usize = 6;
/// How many objects that would be denied are listed at the end: each is also named after its findings.
const DENIED: usize = 50;
/// How many rules that deny an object are listed.
const RULES: usize = 6;
/// How many skipped kinds are listed.
const KINDS: usize = 20;
/// How many skipped documents are listed.
const PASSED_OVER: usize = 5;

/// Writes each object's findings immediately, and a summary at the end.
pub struct TextReport<W> {
    out: W,
    summary: CheckSummary,
    severities: [usize; 3],
    resolved: usize,
    hidden: usize,
    /// The policies that applied, with the number of objects with pods.
    choices: BTreeMap<PolicyChoice, usize>,
    /// Whether advice that neither denies nor warns is counted but not shown.
    quiet_advice: bool,
    /// What would be denied, by top owner, with the rules.
    denied: BTreeMap<String, BTreeSet<&'static str>>,
    /// The rules of the findings that were printed.
    documented: BTreeSet<&'static str>,
    /// How many findings were shown in full, by the rule and the effect.
    in_full: HashMap<(&'static str, Severity, String), usize>,
    /// The findings of each rule, if only they are printed.
    statistics: Option<BTreeMap<&'static str, FindingCount>>,
    /// The notes that were printed, by namespace: each is printed once.
    noted: HashSet<(String, String)>,
    /// Whether suppressed findings are shown.
    shows_suppressed: bool,
    /// The objects that only suppressed findings deny.
    suppressed_denials: Vec<String>,
    /// The configuration files that apply.
    configurations: Vec<String>,
    /// The width of the terminal, in characters; `None`: lines are not wrapped.
    width: Option<usize>,
    /// How many images were looked up, if any were.
    images: Option<ImageCounts>,
}

/// How many findings a rule has.
#[derive(Clone, Copy)]
struct FindingCount {
    findings: usize,
    objects: usize,
    /// The worst severity of its findings.
    severity: Severity,
}

/// One finding as it is displayed.
struct ShownFinding<'f> {
    finding: &'f Finding,
    /// The other containers of the object with the same finding.
    also: Vec<&'f str>,
    /// Its effect, in one or two words.
    effect: &'f str,
    /// Explanations of the effect.
    notes: Vec<String>,
}

impl<W: Write> TextReport<W> {
    /// A report that is written to `out`; without `advice`, advice that neither denies nor warns is not
    /// shown.
    pub fn new(out: W, advice: bool) -> Self {
        TextReport {
            out,
            summary: CheckSummary::default(),
            severities: [0; 3],
            resolved: 0,
            hidden: 0,
            choices: BTreeMap::new(),
            quiet_advice: !advice,
            denied: BTreeMap::new(),
            documented: BTreeSet::new(),
            in_full: HashMap::new(),
            statistics: None,
            noted: HashSet::new(),
            shows_suppressed: false,
            suppressed_denials: Vec::new(),
            configurations: Vec::new(),
            width: None,
            images: None,
        }
    }

    /// The same report, with the number of images that were looked up.
    #[must_use]
    pub fn with_images(self, images: Option<ImageCounts>) -> Self {
        TextReport { images, ..self }
    }

    /// The same report with lines of at most this many characters, as far as words allow.
    #[must_use]
    pub fn wrapped(self, width: Option<usize>) -> Self {
        TextReport { width, ..self }
    }

    /// The same report; suppressed findings are shown as well.
    #[must_use]
    pub fn showing_suppressed(self, shows_suppressed: bool) -> Self {
        TextReport {
            shows_suppressed,
            ..self
        }
    }

    /// The same report; of the findings, only their number for each rule is printed.
    #[must_use]
    pub fn only_statistics(self, only: bool) -> Self {
        TextReport {
            statistics: only.then(BTreeMap::new),
            ..self
        }
    }

    /// The same report, which names these configuration files.
    #[must_use]
    pub fn configured_by(self, configurations: Vec<String>) -> Self {
        TextReport {
            configurations,
            ..self
        }
    }

    /// Writes the findings of one object.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn add(&mut self, checked: &Checked<'_>) -> io::Result<()> {
        self.summary.count(checked);
        if checked.kind.has_pod() && checked.not_reviewed.is_none() {
            *self.choices.entry(checked.choice.clone()).or_default() += 1;
        }
        let mut places = checked.places();
        let evaluation = &checked.evaluation;
        let folded = Folded::of(evaluation.findings.iter());
        self.count_rules(&evaluation.findings);
        for (at, (finding, action_reason)) in
            (evaluation.findings.iter().zip(&checked.action_reasons)).enumerate()
        {
            self.severities[finding.severity as usize] += 1;
            self.resolved += usize::from(!finding.is_open());
            if self.quiet_advice && is_mild_advice(finding) {
                self.hidden += 1;
                continue;
            }
            let Some(also) = folded.others(at) else { continue };
            let (effect, note) = match finding.resolved_by {
                Some(Resolver::Placement) => ("fixed", Some("placement fixes this in admission".to_owned())),
                Some(Resolver::Removal) => ("fixed", Some("admission removes this field".to_owned())),
                None if checked.not_reviewed.is_some() => ("not reviewed here", None),
                None => (finding.action.as_str(), action_reason.clone()),
            };
            let is_new = |note: &String| self.noted.insert((checked.namespace.clone(), note.clone()));
            let notes = note.into_iter().filter(is_new).collect();
            let shown = ShownFinding {
                finding,
                also,
                effect,
                notes,
            };
            self.finding(checked, &shown, places.of(&finding.path))?;
        }
        for (note, findings) in &evaluation.exempted {
            for finding in findings {
                if finding.severity == Severity::Advice && self.quiet_advice {
                    continue;
                }
                let notes = vec![format!("an exemption lifts this: {note}")];
                let effect = "exempted";
                let shown = ShownFinding {
                    finding,
                    also: Vec::new(),
                    effect,
                    notes,
                };
                self.finding(checked, &shown, places.of(&finding.path))?;
            }
        }
        let shown = if self.shows_suppressed {
            checked.suppressed.as_slice()
        } else {
            &[]
        };
        for suppressed in shown {
            let shown = ShownFinding {
                finding: &suppressed.finding,
                also: Vec::new(),
                effect: "suppressed",
                notes: vec![format!("suppressed in {suppressed}")],
            };
            self.finding(checked, &shown, places.of(&suppressed.finding.path))?;
        }
        if checked.is_denial_suppressed() && checked.not_reviewed.is_none() {
            self.suppressed_denials
                .push(format!("{} {}", checked.kind, title(checked)));
        }
        self.verdict(checked)
    }

    /// Writes the decision for the object, if the findings do not already show it.
    fn verdict(&mut self, checked: &Checked<'_>) -> io::Result<()> {
        let (name, kind) = (title(checked), checked.kind);
        let is_shown = self.statistics.is_none();
        let has_errors = |mut findings: Box<dyn Iterator<Item = &Finding> + '_>| {
            findings.any(|finding| finding.severity == Severity::Error)
        };
        let evaluation = &checked.evaluation;
        if evaluation.decision() == Decision::Deny {
            let owner = match &checked.owner {
                Some(owner) if checked.namespace.is_empty() => one_line(owner).into_owned(),
                Some(owner) => {
                    let (kind, name) = owner.split_once(' ').unwrap_or(("", owner));
                    one_line(&format!("{kind} {}/{name}", checked.namespace)).into_owned()
                }
                None => format!("{kind} {name}"),
            };
            let rules = evaluation.open().filter(|finding| finding.action == Action::Deny);
            let denied = self.denied.entry(owner).or_default();
            denied.extend(rules.map(|finding| finding.rule.name));
            if self.statistics.is_some() {
                return Ok(());
            }
            writeln!(self.out, "{BOLD}{kind} {name} would be denied{BOLD:#}\n")
        } else if let Some(why) = &checked.not_reviewed
            && is_shown
            && has_errors(Box::new(evaluation.open()))
        {
            let why = one_line(why);
            writeln!(self.out, "{BOLD}{kind} {name} would pass{BOLD:#}: {why}\n")
        } else if let Some(owner) = &checked.owner
            && is_shown
            && has_errors(Box::new(evaluation.of_the_owner()))
        {
            let owner = one_line(owner);
            writeln!(
                self.out,
                "{BOLD}{kind} {name} would pass{BOLD:#}: its owner's controller is assumed to create it; fix {owner}\n"
            )
        } else {
            Ok(())
        }
    }

    fn finding(
        &mut self,
        checked: &Checked<'_>,
        shown: &ShownFinding<'_>,
        position: Position,
    ) -> io::Result<()> {
        let ShownFinding {
            finding,
            also,
            effect,
            notes,
        } = shown;
        if self.statistics.is_some() {
            return Ok(());
        }
        let style = style_of(finding.severity);
        let out = &mut self.out;
        let (rule, severity) = (finding.rule, finding.severity);
        self.documented.insert(rule.id);
        let width = self.width;
        let others = match also.len() {
            0 => String::new(),
            others => format!(
                ", and in {}: {}",
                count(others, "more container"),
                list(also, CONTAINERS)
            ),
        };
        let key = (rule.id, severity, (*effect).to_owned());
        let before = self.in_full.entry(key).or_default();
        *before += 1;
        if *before > IN_FULL {
            return self.in_one_line(checked, shown, position, &others);
        }
        let head = format!("{severity}[{} {}] ({effect}): ", rule.id, rule.name)
            .chars()
            .count();
        writeln!(
            out,
            "{style}{severity}[{} {}]{style:#} ({effect}){BOLD}: {}{BOLD:#}",
            rule.id,
            rule.name,
            hang(&finding.message, width, head, 2)
        )?;
        let gutter = position.line.to_string().len();
        writeln!(
            out,
            "{:gutter$}{BLUE}-->{BLUE:#} {}:{}:{} ({} {})",
            "",
            one_line(checked.source),
            position.line,
            position.column,
            checked.kind,
            title(checked)
        )?;
        if let Some((shown, caret)) = checked
            .text
            .and_then(|text| window(text, position, excerpt_width(width, gutter)))
        {
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
        let path = format!("{}{others}", finding.path);
        writeln!(out, "{:gutter$} {BLUE}={BLUE:#} field: {}", "", one_line(&path))?;
        let indent = gutter + 3;
        let help = hang(&finding.remedy, width, indent + "help: ".len(), indent);
        writeln!(out, "{:gutter$} {BLUE}={BLUE:#} {BOLD}help:{BOLD:#} {help}", "")?;
        for note in notes {
            let note = hang(note, width, indent + "note: ".len(), indent);
            writeln!(out, "{:gutter$} {BLUE}={BLUE:#} note: {note}", "")?;
        }
        writeln!(out)
    }

    /// Writes a finding of a rule that was shown in full several times.
    fn in_one_line(
        &mut self,
        checked: &Checked<'_>,
        shown: &ShownFinding<'_>,
        position: Position,
        others: &str,
    ) -> io::Result<()> {
        let ShownFinding { finding, effect, .. } = shown;
        let (rule, severity) = (finding.rule, finding.severity);
        let (style, source) = (style_of(severity), checked.source);
        let Position { line, column } = position;
        let (kind, title) = (checked.kind, title(checked));
        let text = format!(
            "{source}:{line}:{column} ({kind} {title}) {}{others}: {}",
            finding.path, finding.message
        );
        writeln!(
            self.out,
            "{style}{severity}[{} {}]{style:#} ({effect}): {}",
            rule.id,
            rule.name,
            one_line(&text)
        )
    }

    /// Writes the errors, the summary, the policies that applied, and what was skipped.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn finish(&mut self, outcome: &CheckOutcome, unjudged: &NotEvaluated) -> io::Result<CheckSummary> {
        let red = AnsiColor::Red.on_default().bold();
        let errors = &outcome.errors;
        for error in errors {
            let at = if error.line == 0 {
                String::new()
            } else {
                format!(":{}", error.line)
            };
            let text = format!("{}{at}: {}", error.source, error.message);
            let text = hang(&text, self.width, "cannot read ".len(), 2);
            writeln!(self.out, "{red}cannot read{red:#} {text}\n")?;
        }
        for note in &outcome.notes {
            let style = match note.level {
                NoteLevel::Warning => style_of(Severity::Warning),
                NoteLevel::Note => BOLD,
            };
            let level = note.level.as_str();
            let text = hang(&note.to_string(), self.width, level.len() + 2, 2);
            writeln!(self.out, "{style}{level}{style:#}: {text}\n")?;
        }
        self.rule_counts()?;
        self.documentation()?;
        self.totals()?;
        self.image_totals()?;
        self.policies()?;
        let NotEvaluated {
            skipped,
            other_documents,
        } = unjudged;
        if !skipped.is_empty() {
            let all: usize = skipped.values().sum();
            let kinds = skipped.iter().map(|(kind, count)| format!("{kind} {count}"));
            let kinds = list(kinds, KINDS);
            let text =
                format!("{all} ({kinds}): admission evaluates the objects that their controllers create");
            writeln!(
                self.out,
                "skipped: {}",
                hang(&text, self.width, "skipped: ".len(), 2)
            )?;
        }
        if !other_documents.is_empty() {
            let (all, places) = (other_documents.len(), list(other_documents, PASSED_OVER));
            let text = format!("{all} that are not Kubernetes objects ({places})");
            let text = hang(&text, self.width, "ignored: ".len(), 2);
            writeln!(self.out, "ignored: {text}")?;
        }
        if !errors.is_empty() {
            writeln!(
                self.out,
                "{} of the input could not be read",
                count(errors.len(), "part")
            )?;
        }
        if !self.configurations.is_empty() {
            let files = self.configurations.join(", ");
            writeln!(self.out, "configuration: {}", hang(&files, self.width, 15, 2))?;
        }
        if !self.suppressed_denials.is_empty() {
            let objects = list(&self.suppressed_denials, KINDS);
            let text = format!("{objects}: admission does not know suppressions");
            let text = hang(&text, self.width, "still denied by admission: ".len(), 2);
            writeln!(self.out, "{BOLD}still denied by admission:{BOLD:#} {text}")?;
        }
        if !self.denied.is_empty() {
            writeln!(self.out, "{BOLD}would be denied:{BOLD:#}")?;
        }
        for (owner, rules) in self.denied.iter().take(DENIED) {
            let text = format!("{owner}: {}", list(rules, RULES));
            writeln!(self.out, "  {}", hang(&text, self.width, 2, 4))?;
        }
        if let Some(more) = self.denied.len().checked_sub(DENIED).filter(|more| *more > 0) {
            writeln!(self.out, "  and {more} more")?;
        }
        Ok(self.summary)
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
        writeln!(
            self.out,
            "to read why, with examples: {}\n",
            hang(&text, self.width, "to read why, with examples: ".len(), 2)
        )
    }

    /// Counts the findings of an object by rule, if they are asked for.
    fn count_rules(&mut self, findings: &[Finding]) {
        let Some(statistics) = &mut self.statistics else {
            return;
        };
        let is_shown = |finding: &&Finding| !(self.quiet_advice && is_mild_advice(finding));
        let mut seen = HashSet::new();
        for finding in findings.iter().filter(is_shown) {
            let of_rule = statistics.entry(finding.rule.id).or_insert(FindingCount {
                findings: 0,
                objects: 0,
                severity: finding.severity,
            });
            of_rule.findings += 1;
            of_rule.objects += usize::from(seen.insert(finding.rule.id));
            of_rule.severity = of_rule.severity.max(finding.severity);
        }
    }

    /// Writes the number of findings of each rule, most first.
    fn rule_counts(&mut self) -> io::Result<()> {
        let Some(statistics) = &self.statistics else {
            return Ok(());
        };
        let mut rows: Vec<_> = statistics.iter().collect();
        rows.sort_by_key(|(id, of_rule)| (Reverse(of_rule.findings), **id));
        for (id, of_rule) in rows {
            let name = rules::find(id).map_or("", |rule| rule.name);
            let FindingCount {
                findings,
                objects,
                severity,
            } = of_rule;
            let style = style_of(*severity);
            let objects = count(*objects, "object");
            writeln!(
                self.out,
                "{findings:>6} {style}{:<7}{style:#} {id} {name} (in {objects})",
                severity.as_str()
            )?;
        }
        if !statistics.is_empty() {
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn totals(&mut self) -> io::Result<()> {
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
        } = self.summary;
        let [advice, warnings, problems] = self.severities;
        let mut text = format!("{} checked, {windows} for Windows", count(objects, "object"));
        if unknown > 0 {
            _ = write!(text, ", {unknown} of unknown operating system");
        }
        text.push_str(": ");
        if findings == 0 {
            _ = write!(text, "nothing found");
        } else {
            let (problems, warnings) = (count(problems, "error"), count(warnings, "warning"));
            _ = write!(text, "{problems}, {warnings}, {advice} advice");
            match self.hidden {
                0 => {}
                hidden if hidden == advice => text.push_str(" (not shown)"),
                hidden => _ = write!(text, " ({hidden} not shown)"),
            }
            if self.resolved > 0 {
                _ = write!(text, ", {} of them fixed in admission", self.resolved);
            }
        }
        if exempted > 0 {
            _ = write!(text, ", {exempted} more exempted");
        }
        if suppressed > 0 {
            _ = write!(text, ", {suppressed} suppressed");
        }
        _ = write!(text, "; {denied} would be denied");
        if not_reviewed > 0 {
            _ = write!(text, ", {not_reviewed} not reviewed here");
        }
        writeln!(self.out, "{}", hang(&text, self.width, 0, 2))?;
        if unknown == 0 {
            return Ok(());
        }
        let text = unknown_os_remedy("check");
        writeln!(
            self.out,
            "unknown: {}",
            hang(&text, self.width, "unknown: ".len(), 2)
        )
    }

    fn image_totals(&mut self) -> io::Result<()> {
        let Some(ImageCounts {
            found,
            missing,
            unknown,
            cached,
        }) = self.images
        else {
            return Ok(());
        };
        let mut text = format!("images: {found} found");
        if missing > 0 {
            _ = write!(text, ", {missing} missing");
        }
        if unknown > 0 {
            _ = write!(text, ", {unknown} not known (see the notes)");
        }
        if cached > 0 {
            _ = write!(text, "; {cached} from the cache");
        }
        writeln!(self.out, "{}", hang(&text, self.width, 0, 2))
    }

    fn policies(&mut self) -> io::Result<()> {
        let alone = self.choices.len() == 1;
        for (choice, objects) in &self.choices {
            let PolicyChoice {
                policy,
                validation,
                placement,
                why,
            } = choice;
            let of = if alone {
                String::new()
            } else {
                format!(", for {}", count(*objects, "object"))
            };
            let text = format!("{policy} (validation {validation}, placement {placement}){of}: {why}");
            writeln!(
                self.out,
                "policy: {}",
                hang(&text, self.width, "policy: ".len(), 2)
            )?;
        }
        Ok(())
    }
}

/// Whether a finding is advice that neither denies nor warns.
fn is_mild_advice(finding: &Finding) -> bool {
    let is_mild = !finding.is_open() || finding.action < Action::Warn;
    finding.severity == Severity::Advice && is_mild
}

/// What to do about pods of unknown operating system, to `check` or to `fix` them.
pub fn unknown_os_remedy(command: &str) -> String {
    format!(
        "if these pods are for Windows, add nodeSelector kubernetes.io/os: windows; {command} them with --os windows"
    )
}

/// The findings of an object, where the same finding in several containers is one.
struct Folded<'f> {
    /// By the index of the first: the names of the containers of the others.
    others: HashMap<usize, Vec<&'f str>>,
    /// The indexes of the others.
    hidden: HashSet<usize>,
}

impl<'f> Folded<'f> {
    fn of(findings: impl Iterator<Item = &'f Finding>) -> Self {
        let mut first = HashMap::new();
        let (mut others, mut hidden) = (HashMap::<usize, Vec<&str>>::new(), HashSet::new());
        for (at, finding) in findings.enumerate() {
            let Some((container, below)) = container_of(finding.path.segments()) else {
                continue;
            };
            let key = (
                finding.rule.id,
                finding.severity,
                (finding.action, finding.resolved_by),
                &finding.message,
                &finding.remedy,
                below,
            );
            match first.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(at),
                Entry::Occupied(entry) => {
                    others.entry(*entry.get()).or_default().push(container);
                    hidden.insert(at);
                }
            }
        }
        Folded { others, hidden }
    }

    /// The other containers with the same finding; `None` if it is one of them.
    fn others(&self, at: usize) -> Option<Vec<&'f str>> {
        (!self.hidden.contains(&at)).then(|| self.others.get(&at).cloned().unwrap_or_default())
    }
}

/// The name of the container of a path, and the path below it.
fn container_of(segments: &[Segment]) -> Option<(&str, &[Segment])> {
    let at = segments.windows(2).position(|pair| {
        matches!(pair, [Segment::Field(list), Segment::Item(..)]
            if ContainerList::ALL.iter().any(|known| known.field() == *list))
    })?;
    match segments.get(at + 1) {
        Some(Segment::Item(_, name)) => Some((name.as_deref().unwrap_or_default(), segments.get(at + 2..)?)),
        _ => None,
    }
}

fn title(checked: &Checked<'_>) -> String {
    let name = if checked.name.is_empty() {
        "(no name)"
    } else {
        &checked.name
    };
    let conflicting = checked.evaluation.inference.verdict == Verdict::Conflicting;
    let suffix = if conflicting { ", Windows or Linux" } else { "" };
    let title = if checked.namespace.is_empty() {
        format!("{name}{suffix}")
    } else {
        format!("{}/{name}{suffix}", checked.namespace)
    };
    one_line(&title).into_owned()
}

/// The display style of a severity.
pub(super) fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Error => AnsiColor::Red.on_default().bold(),
        Severity::Warning => AnsiColor::Yellow.on_default().bold(),
        Severity::Advice => AnsiColor::Cyan.on_default().bold(),
    }
}

/// A text as one line, or as lines of at most `width` characters. The first one follows `used` characters, and the others
/// are indented.
fn hang(text: &str, width: Option<usize>, used: usize, indent: usize) -> String {
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

/// How much of a source line is shown, in characters.
fn excerpt_width(width: Option<usize>, gutter: usize) -> usize {
    /// The gutter's ` | `, and an ellipsis at both ends.
    const CONTEXT: usize = 5;
    width.map_or(WIDTH, |width| {
        width.saturating_sub(gutter + CONTEXT).clamp(20, WIDTH)
    })
}

/// The excerpt of a line around a position, without control characters, and the offset of the position in it.
fn window(text: &SourceLines, position: Position, most: usize) -> Option<(String, usize)> {
    let at = position.column.saturating_sub(1);
    let line = text.excerpt(position.line, 0, most + 1)?;
    if line.chars().nth(most).is_none() {
        return Some((one_line(&line).into_owned(), at));
    }
    let start = at.saturating_sub(most / 3);
    let shown = text.excerpt(position.line, start, most)?;
    let shown = one_line(&shown);
    Some(if start == 0 {
        (format!("{shown}…"), at)
    } else {
        (format!("…{shown}…"), at - start + 1)
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::civil::date;

    use super::{NotEvaluated, SourceLines, TextReport, WIDTH, window};
    use crate::check::{CheckInput, Manifests};
    use crate::engine::policy_set::PolicySet;
    use crate::manifest::Position;
    use crate::model::facts::Facts;
    use crate::model::object::ReviewStage;
    use crate::model::policy::Policy;

    #[test]
    fn the_report_says_what_is_left_to_an_owner_and_what_was_skipped() {
        let spec = "{template: {spec: {nodeSelector: {kubernetes.io/os: windows}, hostPID: true, containers: \
                    [{name: a, image: a}]}}}";
        let text = format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web-1, ownerReferences: [{{apiVersion: apps/v1, \
             kind: Deployment, name: web, controller: true}}]}}, spec: {spec}}}\n---\n\
             {{apiVersion: example.com/v1, kind: GameServerSet, spec: {spec}}}\n"
        );
        let manifests = Manifests::parse(vec![CheckInput {
            source: "-".to_owned(),
            bytes: text.into_bytes(),
        }]);
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let mut out = Vec::new();
        let mut report = TextReport::new(&mut out, false);
        let outcome = manifests.run(&facts, &policies, ReviewStage::Written, |checked| {
            report.add(&checked).unwrap();
        });
        report.finish(&outcome, &NotEvaluated::of(&manifests)).unwrap();
        let printed = anstream::adapter::strip_bytes(&out).into_vec();
        let printed = String::from_utf8(printed).unwrap();
        for line in [
            "ReplicaSet web-1 would pass: its owner's controller is assumed to create it; fix Deployment web\n",
            "; 0 would be denied\n",
            "\nskipped: 1 (GameServerSet 1): admission evaluates the objects that their controllers create\n",
        ] {
            assert!(printed.contains(line), "{printed}");
        }
    }

    #[test]
    fn lines_fit_the_terminal_as_far_as_words_allow() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  nodeSelector: {kubernetes.io/os: windows}\n  \
                    containers:\n  - name: a # a comment that makes this line longer than the terminal is wide\n    \
                    image: mcr.microsoft.com/windows/nanoserver:ltsc2022\n    securityContext: {runAsUser: 1}\n";
        let mut manifests = Manifests::new(true);
        manifests.add(CheckInput {
            source: "web.yaml".to_owned(),
            bytes: text.into(),
        });
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let print = |width| {
            let mut out = Vec::new();
            let mut report = TextReport::new(&mut out, true).wrapped(width);
            let outcome = manifests.run(&facts, &policies, ReviewStage::Written, |checked| {
                report.add(&checked).unwrap();
            });
            report.finish(&outcome, &NotEvaluated::of(&manifests)).unwrap();
            String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
        };
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let wide = print(None);
        assert!(wide.lines().any(|line| line.chars().count() > 120), "{wide}");
        for width in [40, 60, 80, 100] {
            let narrow = print(Some(width));
            for line in narrow.lines() {
                let is_position = line.contains("-->") || line.contains("= field:");
                let fits = line.chars().count() <= width || words(line).len() <= 4;
                assert!(fits || is_position, "{width}: {line}\n{narrow}");
            }
            // No word is lost; excerpts of lines are cut.
            if width >= 100 {
                assert_eq!(words(&narrow), words(&wide));
            }
        }
        // Too narrow for columns: the terminal breaks the lines.
        assert_eq!(print(Some(10)).lines().count(), wide.lines().count());
    }

    #[test]
    fn findings_on_one_long_line_cost_no_count_of_the_line_each() {
        let text = SourceLines::new("{\"key\": 1}".repeat(2_000_000).into());
        let start = Instant::now();
        for finding in 0..2_000 {
            let position = Position {
                line: 1,
                column: finding * 10_000 + 2,
            };
            let (shown, caret) = window(&text, position, WIDTH).unwrap();
            let field: String = shown.chars().skip(caret).take(5).collect();
            assert_eq!(field, "\"key\"");
        }
        // Without marks, this takes minutes, because each finding counts through the whole line.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn a_long_line_is_shown_around_the_field() {
        let at = |text: &str, line, column| {
            window(&SourceLines::new(text.into()), Position { line, column }, WIDTH).unwrap()
        };
        // Marks inside a line are 4,096 bytes apart, and multi-byte characters can overlap them.
        for before in ["a".repeat(1000), "aé\u{10000}".repeat(5000), "é".repeat(2048)] {
            let column = before.chars().count() + 1;
            let text = format!("first\n{before}field{}\r\nlast", "b".repeat(10_000));
            let (shown, caret) = at(&text, 2, column);
            assert_eq!(shown.chars().skip(caret).take(5).collect::<String>(), "field");
            assert_eq!(shown.chars().count(), 122);
            assert_eq!(at(&text, 1, 1), ("first".to_owned(), 0));
            assert_eq!(at(&text, 3, 2), ("last".to_owned(), 1));
            let whole = SourceLines::new(text.clone().into());
            let line = text.lines().nth(1).unwrap();
            for skip in [0, 1, 4095, 4096, 4097, 8191, 12_000, 1_000_000] {
                let expected: String = line.chars().skip(skip).take(7).collect();
                assert_eq!(whole.excerpt(2, skip, 7).unwrap(), expected, "{skip}");
            }
        }
        assert_eq!(at("\tshort", 1, 2), (" short".to_owned(), 1));
    }
}
