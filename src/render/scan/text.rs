//! The report of a scan for people: what it adds up to, then by namespace, owner and finding, the pods in trouble, the nodes,
//! and last what could not be read.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::AnsiColor;

use super::super::text::{BLUE, BOLD, count, style_of};
use crate::model::os::Verdict;
use crate::model::text::{list, one_line};
use crate::scan::report::{Namespace, Node, PodTrouble, Report};
use crate::scan::{Fate, Found, Judged, Outcome};

/// How many owners that are like one are named.
const LIKE_IT: usize = 5;
/// How many namespaces without a policy are named.
const NAMESPACES: usize = 10;
/// How many changed fields are named.
const FIELDS: usize = 8;
/// How many pools and nodes are named in a row of the table of builds.
const POOLS: usize = 4;

/// Writes the report for people.
///
/// # Errors
/// Whatever the writer says.
pub fn scan_text(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    Text { report, out }.write()
}

struct Text<'r> {
    report: &'r Report,
    out: &'r mut dyn Write,
}

impl Text<'_> {
    fn write(&mut self) -> io::Result<()> {
        self.summary()?;
        self.namespaces()?;
        self.pods()?;
        self.nodes()?;
        self.gaps()
    }

    fn summary(&mut self) -> io::Result<()> {
        let Report {
            cluster,
            summary,
            judged_as,
            ..
        } = self.report;
        write!(
            self.out,
            "{BOLD}{}{BOLD:#} (Kubernetes {}): {}, {} of pods, {} for Windows: ",
            one_line(&cluster.name),
            cluster.kubernetes,
            count(summary.objects, "object"),
            count(summary.owners, "owner"),
            summary.windows,
        )?;
        let would = summary.would_be_denied.saturating_sub(summary.denied);
        let said = [
            (summary.denied, "would be denied at the next create"),
            (would, "would be denied if validation were Deny"),
            (summary.changed, "changed"),
            (summary.warned, "warned of"),
            (
                summary.not_asked,
                "with findings that admission is not asked about",
            ),
        ];
        let of_pods = [
            (summary.misplaced, "on a node that cannot run them"),
            (summary.pending, "that cannot start"),
        ];
        let is_there = |(n, _): &&(usize, &str)| *n > 0;
        let mut said: Vec<String> = (said.iter().filter(is_there))
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        let of_pods = of_pods.iter().filter(is_there);
        said.extend(of_pods.map(|(n, what)| format!("{} {what}", count(*n, "pod"))));
        if summary.unreadable > 0 {
            said.push(format!(
                "{} that cannot be read",
                count(summary.unreadable, "object")
            ));
        }
        if said.is_empty() && summary.objects == 0 && !self.report.gaps.is_empty() {
            writeln!(self.out, "no object could be read, see below")?;
        } else if said.is_empty() {
            writeln!(self.out, "nothing found")?;
        } else {
            writeln!(self.out, "{}", said.join(", "))?;
        }
        if !judged_as.is_empty() {
            writeln!(
                self.out,
                "judged as if the policies said {}, and not by what they say",
                one_line(&judged_as.join(", "))
            )?;
        } else if cluster.policies.is_empty() {
            writeln!(
                self.out,
                "no WindowsPodPolicy counts: judged by the built-in one, which denies nothing and changes nothing"
            )?;
        }
        if !cluster.namespaces_without_policy.is_empty() {
            let without = &cluster.namespaces_without_policy;
            writeln!(
                self.out,
                "{} without a policy: {}; the built-in one counts there, which denies nothing and changes nothing",
                count(without.len(), "namespace"),
                one_line(&list(without, NAMESPACES))
            )?;
        }
        if !cluster.has_webhooks {
            writeln!(
                self.out,
                "Transom's webhooks are not registered in this cluster: judged as if they were"
            )?;
        }
        if summary.denied > 0 || would > 0 {
            writeln!(
                self.out,
                "denied is what a create meets: a new object, delete and apply, a restore of a backup. An update passes as long \
                 as it leaves a problem as it is: it was there before. Pods of a controller whose owner stands here pass too"
            )?;
        }
        writeln!(self.out)
    }

    fn namespaces(&mut self) -> io::Result<()> {
        let mut owners: BTreeMap<&str, Vec<&Judged>> = BTreeMap::new();
        for judged in &self.report.owners {
            owners.entry(&judged.namespace).or_default().push(judged);
        }
        for namespace in &self.report.namespaces {
            if let Some(owners) = owners.get(namespace.name.as_str()) {
                self.namespace(namespace, owners)?;
            }
        }
        Ok(())
    }

    fn namespace(&mut self, namespace: &Namespace, owners: &[&Judged]) -> io::Result<()> {
        let name = one_line(&namespace.name);
        match &namespace.not_asked {
            Some(why) => writeln!(
                self.out,
                "{BOLD}namespace {name}{BOLD:#}: admission is not asked: {}",
                one_line(why)
            )?,
            None => writeln!(
                self.out,
                "{BOLD}namespace {name}{BOLD:#} (policy {}: validation {}, placement {})",
                one_line(&namespace.policy),
                namespace.validation,
                namespace.placement
            )?,
        }
        let mut groups: Vec<(Likeness<'_>, Vec<&Judged>)> = Vec::new();
        for judged in owners.iter().filter(|judged| !judged.is_clean()) {
            let likeness = Likeness::of(judged);
            match groups.iter_mut().find(|(other, _)| *other == likeness) {
                Some((_, group)) => group.push(judged),
                None => groups.push((likeness, vec![judged])),
            }
        }
        groups.sort_by_key(|(likeness, _)| likeness.outcome);
        for (_, group) in &groups {
            if let Some((first, others)) = group.split_first() {
                self.owner(first, others)?;
            }
        }
        let clean: Vec<String> = (owners.iter())
            .filter(|judged| judged.is_clean())
            .map(|judged| title(judged))
            .collect();
        if !clean.is_empty() {
            let named = list(&clean, LIKE_IT);
            writeln!(
                self.out,
                "  nothing found in {} for Windows: {}",
                count(clean.len(), "owner"),
                one_line(&named)
            )?;
        }
        writeln!(self.out)
    }

    fn owner(&mut self, judged: &Judged, others: &[&Judged]) -> io::Result<()> {
        let becomes = match judged.outcome {
            Outcome::Denied => "would be denied",
            Outcome::Changed => "would be changed",
            Outcome::Passes if judged.findings.iter().any(|found| found.would_deny) => {
                "passes; would be denied if validation were Deny"
            }
            Outcome::Passes => "passes",
            Outcome::NotAsked => "passes: admission is not asked",
        };
        let system = match judged.verdict {
            Verdict::Windows => "",
            Verdict::Linux => ", Linux",
            Verdict::Unknown => ", of no known operating system",
            Verdict::Conflicting => ", Windows or Linux",
        };
        let title = title(judged);
        writeln!(self.out, "  {BOLD}{} {becomes}{BOLD:#}{system}", one_line(&title))?;
        for found in &judged.findings {
            self.finding(found)?;
        }
        for (fields, word) in [
            (&judged.changes, "changed"),
            (&judged.would_change, "changed if not in dry run"),
        ] {
            if !fields.is_empty() {
                let fields = list(fields, FIELDS);
                writeln!(self.out, "    {BLUE}={BLUE:#} {word}: {}", one_line(&fields))?;
            }
        }
        if !others.is_empty() {
            let names = others.iter().map(|other| self::title(other));
            let names = list(names, LIKE_IT);
            writeln!(
                self.out,
                "    and {} more like it: {}",
                others.len(),
                one_line(&names)
            )?;
        }
        Ok(())
    }

    fn finding(&mut self, found: &Found) -> io::Result<()> {
        let style = style_of(found.severity);
        writeln!(
            self.out,
            "    {style}{}[{} {}]{style:#} ({}){BOLD}: {}{BOLD:#}",
            found.severity,
            found.id,
            found.rule,
            fate(found.fate),
            one_line(&found.message)
        )?;
        writeln!(self.out, "      {BLUE}={BLUE:#} field: {}", one_line(&found.path))?;
        writeln!(
            self.out,
            "      {BLUE}={BLUE:#} {BOLD}help:{BOLD:#} {}",
            one_line(&found.remedy)
        )?;
        // The namespace's own line says why admission is not asked.
        if let Some(because) = found.because.as_ref().filter(|_| found.fate != Fate::Passed) {
            writeln!(self.out, "      {BLUE}={BLUE:#} note: {}", one_line(because))?;
        }
        Ok(())
    }

    fn pods(&mut self) -> io::Result<()> {
        let (misplaced, waiting): (Vec<&PodTrouble>, Vec<&PodTrouble>) =
            self.report.pods.iter().partition(|pod| pod.wrong.is_misplaced());
        self.troubles("pods on a node that cannot run them", &misplaced)?;
        self.troubles("pods that cannot start", &waiting)
    }

    fn troubles(&mut self, heading: &str, pods: &[&PodTrouble]) -> io::Result<()> {
        if pods.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{BOLD}{heading}{BOLD:#}")?;
        let mut groups: Vec<(&PodTrouble, Vec<&str>)> = Vec::new();
        for pod in pods {
            let is_like = |other: &PodTrouble| {
                let key = |pod: &PodTrouble| (pod.wrong, pod.message.clone());
                pod.owner.is_some()
                    && (&other.namespace, &other.owner) == (&pod.namespace, &pod.owner)
                    && key(other) == key(pod)
            };
            match groups.iter_mut().find(|(other, _)| is_like(other)) {
                Some((_, others)) => others.push(&pod.name),
                None => groups.push((pod, Vec::new())),
            }
        }
        let red = AnsiColor::Red.on_default().bold();
        for (pod, others) in groups {
            let owner = pod
                .owner
                .as_ref()
                .map(|owner| format!(" of {owner}"))
                .unwrap_or_default();
            let name = format!("{}/{}{owner}", pod.namespace, pod.name);
            let since = pod
                .since
                .map(|since| format!(" (since {})", since.strftime("%Y-%m-%d %H:%M UTC")));
            writeln!(
                self.out,
                "  {red}{}{red:#}{}{BOLD}: {}{BOLD:#}",
                one_line(&name),
                since.unwrap_or_default(),
                one_line(&pod.message)
            )?;
            writeln!(
                self.out,
                "    {BLUE}={BLUE:#} {BOLD}help:{BOLD:#} {}",
                one_line(&pod.remedy)
            )?;
            if !others.is_empty() {
                let names = list(&others, LIKE_IT);
                writeln!(
                    self.out,
                    "    and {} more of it: {}",
                    others.len(),
                    one_line(&names)
                )?;
            }
        }
        writeln!(self.out)
    }

    /// The Windows nodes by build, in one table.
    fn nodes(&mut self) -> io::Result<()> {
        if self.report.nodes.is_empty() {
            return Ok(());
        }
        let mut builds: BTreeMap<(Option<&str>, bool), Vec<&Node>> = BTreeMap::new();
        for node in &self.report.nodes {
            let key = (node.build.as_deref(), node.is_at_zero);
            builds.entry(key).or_default().push(node);
        }
        writeln!(self.out, "{BOLD}Windows nodes{BOLD:#}")?;
        writeln!(
            self.out,
            "  {:12} {:20} {:14} {:>6}  POOLS; TAINTS",
            "BUILD", "RELEASE", "SERVICED UNTIL", "NODES"
        )?;
        for ((build, is_at_zero), nodes) in builds {
            let first = nodes.first().copied();
            let until = first
                .and_then(|node| node.end_of_service)
                .map(|day| day.to_string());
            let pools = unique(nodes.iter().map(|node| node.pool.as_ref().unwrap_or(&node.name)));
            let taints = unique(nodes.iter().flat_map(|node| &node.taints));
            let (pools, taints) = (list(pools, POOLS), list(taints, POOLS));
            let nodes = if is_at_zero { 0 } else { nodes.len() };
            writeln!(
                self.out,
                "  {:12} {:20} {:14} {nodes:>6}  {}; {}",
                one_line(build.unwrap_or("not known")),
                first.and_then(|node| node.release).unwrap_or("-"),
                until.as_deref().unwrap_or("-"),
                one_line(&pools),
                if taints.is_empty() {
                    "no taint".into()
                } else {
                    one_line(&taints)
                }
            )?;
        }
        writeln!(self.out)
    }

    fn gaps(&mut self) -> io::Result<()> {
        if self.report.gaps.is_empty() {
            return Ok(());
        }
        let yellow = AnsiColor::Yellow.on_default().bold();
        writeln!(
            self.out,
            "{BOLD}not read or judged{BOLD:#}: what stands above is whole but for this"
        )?;
        for gap in &self.report.gaps {
            writeln!(
                self.out,
                "  {yellow}{}{yellow:#}: {}",
                one_line(&gap.what),
                one_line(&gap.why)
            )?;
            if let Some(cure) = &gap.cure {
                writeln!(
                    self.out,
                    "    {BLUE}={BLUE:#} {BOLD}help:{BOLD:#} {}",
                    one_line(cure)
                )?;
            }
        }
        writeln!(self.out)
    }
}

/// What owners have in common that are shown as one.
#[derive(PartialEq)]
struct Likeness<'j> {
    outcome: Outcome,
    kind: &'static str,
    findings: Vec<(&'static str, Fate, &'j str)>,
    changes: (&'j [String], &'j [String]),
}

impl<'j> Likeness<'j> {
    fn of(judged: &'j Judged) -> Self {
        let finding = |found: &'j Found| (found.id, found.fate, found.because.as_deref().unwrap_or_default());
        let mut findings: Vec<_> = judged.findings.iter().map(finding).collect();
        findings.dedup();
        Likeness {
            outcome: judged.outcome,
            kind: judged.kind.as_str(),
            findings,
            changes: (&judged.changes, &judged.would_change),
        }
    }
}

/// What becomes of a finding, in a word or two.
fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Denied => "denied",
        Fate::Warned => "warned of",
        Fate::Noted => "noted",
        Fate::Mended => "mended in admission",
        Fate::Mendable => "would be mended if not in dry run",
        Fate::Exempted => "exempted",
        Fate::Passed => "not asked",
    }
}

fn title(judged: &Judged) -> String {
    let stands_for = judged
        .owner
        .as_ref()
        .map(|owner| format!(" of {} {}", owner.kind, owner.name));
    format!(
        "{} {}{}",
        judged.kind,
        judged.name,
        stands_for.unwrap_or_default()
    )
}

fn unique<'t>(texts: impl Iterator<Item = &'t String>) -> Vec<&'t String> {
    let mut texts: Vec<&String> = texts.collect();
    texts.sort();
    texts.dedup();
    texts
}
