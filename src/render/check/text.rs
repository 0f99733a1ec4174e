//! The report of a check as text: every finding with its source line, like a compiler error.

mod excerpt;
mod folded;
mod totals;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};

use self::excerpt::{excerpt_width, window};
use self::folded::Folded;
use super::super::text::{BLUE, BOLD, hang, style_of};
use super::CheckReport;
use crate::check::{Checked, FindingDetail};
use crate::manifest::Position;
use crate::model::cluster::policy::Action;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::syntax::text::{count, list, one_line};
use crate::model::windows::os::Verdict;
use crate::rules::{Finding, Resolver};

/// How many findings of one rule with the same effect are shown with an excerpt. Each of the others is one line.
const IN_FULL: usize = 3;
/// How many further containers of a finding are named.
const CONTAINERS: usize = 6;

/// What the text shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckTextOptions {
    /// Advice that neither denies nor warns; without it, that is only counted.
    pub advice: bool,
    /// Suppressed findings as well.
    pub suppressed: bool,
    /// Only the number of findings of each rule.
    pub statistics: bool,
    /// The width of the terminal, in characters: lines are at most that long, as far as words allow. `None`: lines are not
    /// wrapped.
    pub width: Option<usize>,
}

/// Writes each object's findings, and a summary at the end.
///
/// # Errors
/// The errors of the writer.
pub fn check_text(
    report: &CheckReport<'_>,
    options: &CheckTextOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = CheckText {
        out,
        options: *options,
        documented: BTreeSet::new(),
        in_full: HashMap::new(),
        noted: HashSet::new(),
    };
    if !options.statistics {
        report
            .objects
            .iter()
            .try_for_each(|checked| text.object(checked))?;
    }
    text.totals(report)
}

struct CheckText<'o> {
    out: &'o mut dyn Write,
    options: CheckTextOptions,
    /// The rules of the findings that were printed.
    documented: BTreeSet<&'static str>,
    /// How many findings were shown in full, by the rule and the effect.
    in_full: HashMap<(&'static str, Severity, String), usize>,
    /// The notes that were printed, by namespace: each is printed once.
    noted: HashSet<(String, String)>,
}

/// One finding as it is displayed.
struct ShownFinding<'f> {
    finding: &'f Finding,
    position: Position,
    /// The other containers of the object with the same finding, as in `, and in 2 more containers: a, b`.
    also: String,
    /// Its effect, in one or two words.
    effect: &'f str,
    /// Explanations of the effect.
    notes: Vec<String>,
}

impl CheckText<'_> {
    /// Writes the findings of one object.
    fn object(&mut self, checked: &Checked<'_>) -> io::Result<()> {
        let folded = Folded::of(checked.evaluation.findings.iter());
        for (at, (finding, detail)) in checked.findings().enumerate() {
            if !self.options.advice && is_mild_advice(finding) {
                continue;
            }
            if let Some(also) = folded.others(at) {
                let shown = self.shown(checked, finding, detail, &also);
                self.finding(checked, &shown)?;
            }
        }
        for (note, finding, position) in checked.exempted() {
            if finding.severity == Severity::Advice && !self.options.advice {
                continue;
            }
            let shown = ShownFinding {
                finding,
                position,
                also: String::new(),
                effect: "exempted",
                notes: vec![format!("an exemption lifts this: {note}")],
            };
            self.finding(checked, &shown)?;
        }
        let CheckTextOptions { suppressed, .. } = self.options;
        for suppressed in checked.suppressed.iter().filter(|_| suppressed) {
            let shown = ShownFinding {
                finding: &suppressed.finding,
                position: suppressed.position,
                also: String::new(),
                effect: "suppressed",
                notes: vec![format!("suppressed in {suppressed}")],
            };
            self.finding(checked, &shown)?;
        }
        self.verdict(checked)
    }

    fn shown<'f>(
        &mut self,
        checked: &Checked<'_>,
        finding: &'f Finding,
        detail: &FindingDetail,
        also: &[&str],
    ) -> ShownFinding<'f> {
        let (effect, note) = match finding.resolved_by {
            Some(Resolver::Placement) => (
                "set at pod creation",
                Some("placement fixes this in admission".to_owned()),
            ),
            Some(Resolver::Removal) => (
                "set at pod creation",
                Some("admission removes this field".to_owned()),
            ),
            None if checked.not_reviewed.is_some() => ("in an excluded namespace", None),
            None => (finding.action.as_str(), detail.action_reason.clone()),
        };
        let containers = match also.len() {
            0 => String::new(),
            others => format!(
                ", and in {}: {}",
                count(others, "more container"),
                list(also, CONTAINERS)
            ),
        };
        let is_new = |note: &String| self.noted.insert((checked.namespace.clone(), note.clone()));
        ShownFinding {
            finding,
            position: detail.position,
            also: containers,
            effect,
            notes: note.into_iter().filter(is_new).collect(),
        }
    }

    /// Writes the decision for the object, if the findings do not already show it.
    fn verdict(&mut self, checked: &Checked<'_>) -> io::Result<()> {
        let (kind, name) = (checked.kind, title(checked));
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        let evaluation = &checked.evaluation;
        if checked.is_denied() {
            writeln!(self.out, "{BOLD}{kind} {name} would be denied{BOLD:#}\n")
        } else if let Some(why) = &checked.not_reviewed
            && evaluation.open().any(is_error)
        {
            let why = one_line(why);
            // What the API server itself rejects, it rejects without Transom.
            let is_rejected = |finding: &Finding| is_error(finding) && finding.rule.class == Class::ApiAlways;
            let verdict = if evaluation.open().any(is_rejected) {
                "would be rejected by the API server"
            } else {
                "would pass"
            };
            writeln!(self.out, "{BOLD}{kind} {name} {verdict}{BOLD:#}: {why}\n")
        } else if let Some(owner) = &checked.owner
            && evaluation.of_the_owner().any(is_error)
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

    fn finding(&mut self, checked: &Checked<'_>, shown: &ShownFinding<'_>) -> io::Result<()> {
        let ShownFinding {
            finding,
            position,
            also,
            effect,
            notes,
        } = shown;
        let (rule, severity, width) = (finding.rule, finding.severity, self.options.width);
        self.documented.insert(rule.id);
        let key = (rule.id, severity, (*effect).to_owned());
        let before = self.in_full.entry(key).or_default();
        *before += 1;
        if *before > IN_FULL {
            return self.in_one_line(checked, shown);
        }
        let style = style_of(severity);
        let head = format!("{severity}[{} {}] ({effect}): ", rule.id, rule.name);
        writeln!(
            self.out,
            "{style}{severity}[{} {}]{style:#} ({effect}){BOLD}: {}{BOLD:#}",
            rule.id,
            rule.name,
            hang(&finding.message, width, head.chars().count(), 2)
        )?;
        let gutter = position.line.to_string().len();
        self.excerpt(checked, severity, *position)?;
        let path = format!("{}{also}", finding.path);
        writeln!(
            self.out,
            "{:gutter$} {BLUE}={BLUE:#} field: {}",
            "",
            one_line(&path)
        )?;
        let indent = gutter + 3;
        let help = hang(&finding.remedy, width, indent + "help: ".len(), indent);
        writeln!(
            self.out,
            "{:gutter$} {BLUE}={BLUE:#} {BOLD}help:{BOLD:#} {help}",
            ""
        )?;
        for note in notes {
            let note = hang(note, width, indent + "note: ".len(), indent);
            writeln!(self.out, "{:gutter$} {BLUE}={BLUE:#} note: {note}", "")?;
        }
        writeln!(self.out)
    }

    /// Writes a position, and its line if the text was kept.
    fn excerpt(&mut self, checked: &Checked<'_>, severity: Severity, position: Position) -> io::Result<()> {
        let style = style_of(severity);
        let gutter = position.line.to_string().len();
        writeln!(
            self.out,
            "{:gutter$}{BLUE}-->{BLUE:#} {}:{}:{} ({} {})",
            "",
            one_line(checked.source),
            position.line,
            position.column,
            checked.kind,
            title(checked)
        )?;
        let width = excerpt_width(self.options.width, gutter);
        let Some((shown, caret)) = checked.text.and_then(|text| window(text, position, width)) else {
            return Ok(());
        };
        let length = shown
            .chars()
            .skip(caret)
            .take_while(|c| !matches!(c, ':' | ' ' | ',' | '}' | ']'))
            .count();
        writeln!(self.out, "{:gutter$} {BLUE}|{BLUE:#}", "")?;
        writeln!(self.out, "{BLUE}{} |{BLUE:#} {shown}", position.line)?;
        let carets = "^".repeat(length.max(1));
        writeln!(
            self.out,
            "{:gutter$} {BLUE}|{BLUE:#} {:caret$}{style}{carets}{style:#}",
            "", ""
        )
    }

    /// Writes a finding of a rule that was shown in full several times.
    fn in_one_line(&mut self, checked: &Checked<'_>, shown: &ShownFinding<'_>) -> io::Result<()> {
        let ShownFinding {
            finding,
            position: Position { line, column },
            also,
            effect,
            ..
        } = shown;
        let (rule, severity) = (finding.rule, finding.severity);
        let (style, source) = (style_of(severity), checked.source);
        let (kind, title) = (checked.kind, title(checked));
        let text = format!(
            "{source}:{line}:{column} ({kind} {title}) {}{also}: {}",
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

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::check::{CheckInput, CheckSettings, Manifests};
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;
    use crate::model::objects::object::ReviewStage;

    fn printed(manifests: &Manifests, options: CheckTextOptions) -> String {
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let written = manifests.objects(ReviewStage::Written);
        let mut report = CheckReport::default();
        report.not_evaluated.add(manifests);
        report.outcome = written.run(&facts, &policies, |checked| report.objects.push(checked));
        let mut out = Vec::new();
        check_text(&report, &options, &mut out).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn the_report_says_what_is_left_to_an_owner_and_what_was_skipped() {
        let spec = "{template: {spec: {nodeSelector: {kubernetes.io/os: windows}, hostPID: true, containers: \
                    [{name: a, image: a}]}}}";
        let text = format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web-1, ownerReferences: [{{apiVersion: apps/v1, \
             kind: Deployment, name: web, controller: true}}]}}, spec: {spec}}}\n---\n\
             {{apiVersion: example.com/v1, kind: GameServerSet, spec: {spec}}}\n---\n\
             {{apiVersion: v1, kind: Pod, metadata: {{name: api-2-x, labels: {{pod-template-hash: '2'}}, ownerReferences: \
             [{{apiVersion: apps/v1, kind: ReplicaSet, name: api-2, controller: true}}]}}, spec: {{nodeSelector: \
             {{kubernetes.io/os: windows}}, securityContext: {{runAsUser: 1}}, containers: [{{name: a, image: a}}]}}}}\n"
        );
        let manifests = Manifests::parse(vec![CheckInput {
            source: "-".to_owned(),
            bytes: text.into_bytes(),
        }]);
        let printed = printed(&manifests, CheckTextOptions::default());
        for line in [
            "ReplicaSet web-1 would pass: its owner's controller is assumed to create it; fix Deployment web\n",
            "Pod api-2-x would pass: its owner's controller is assumed to create it; fix Deployment api\n",
            "; 0 would be denied\n",
            "\nskipped: 1 (GameServerSet.example.com 1): admission evaluates the objects that their controllers create. These select Windows nodes: \
             GameServerSet (-:3). To evaluate their pods, add to cluster.podTemplates in \
             .transom.yaml: {group: example.com, kind: GameServerSet, path: spec.template}\n",
        ] {
            assert!(printed.contains(line), "{printed}");
        }
    }

    #[test]
    fn lines_fit_the_terminal_as_far_as_words_allow() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  nodeSelector: {kubernetes.io/os: windows}\n  \
                    containers:\n  - name: a # a comment that makes this line longer than the terminal is wide\n    \
                    image: mcr.microsoft.com/windows/nanoserver:ltsc2022\n    securityContext: {runAsUser: 1}\n";
        let mut manifests = Manifests::new(CheckSettings {
            keep_text: true,
            ..CheckSettings::default()
        });
        manifests.add(CheckInput {
            source: "web.yaml".to_owned(),
            bytes: text.into(),
        });
        let print = |width| {
            let options = CheckTextOptions {
                advice: true,
                width,
                ..CheckTextOptions::default()
            };
            printed(&manifests, options)
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
}
