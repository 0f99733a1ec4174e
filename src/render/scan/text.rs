//! The report of a scan as text: totals; pods with problems; then namespaces, owners and findings; nodes; and last what
//! could not be read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use anstyle::AnsiColor;

use super::super::table::TextTable;
use super::super::text::{BOLD, help, labelled, style_of};
use super::changes::changes_text;
use super::view::{ScanView, outcome};
use crate::engine::NodeFinding;
use crate::model::cluster::severity::Severity;
use crate::model::syntax::text::{count, list, one_line};
use crate::model::windows::os::Verdict;
use crate::scan::report::{NamespaceReport, PodFinding, ScanReport, ScannedNode};
use crate::scan::{FindingOutcome, FindingResult, OwnerOutcome, OwnerResult};

/// How many owners with the same findings are listed.
const LIKE_IT: usize = 5;
/// How many namespaces of a rule are listed.
const NAMESPACES_OF_RULE: usize = 3;
/// How many namespaces without a policy are listed.
const NAMESPACES: usize = 10;
/// How many patched fields are listed.
const FIELDS: usize = 8;
/// How many pools and nodes are listed in a row of the table of builds.
const POOLS: usize = 4;
/// The resource of the policies, as gaps name it.
const POLICIES: &str = "windowspodpolicies";

/// Writes the report as text.
///
/// # Errors
/// The errors of the writer.
pub fn scan_text(report: &ScanReport, shown: ScanView, out: &mut dyn Write) -> io::Result<()> {
    ScanText { report, shown, out }.write()
}

struct ScanText<'r> {
    report: &'r ScanReport,
    shown: ScanView,
    out: &'r mut dyn Write,
}

/// The totals of a rule or a namespace.
#[derive(Default)]
struct ScanTotals<'r> {
    severity: Option<Severity>,
    id: &'static str,
    denied: usize,
    would_deny: usize,
    patched: usize,
    warned: usize,
    other: usize,
    namespaces: BTreeSet<&'r str>,
}

impl ScanTotals<'_> {
    /// The cells of a table: these, the counts, and another one.
    fn cells(&self, mut cells: Vec<String>, last: Option<String>) -> Vec<String> {
        let counts = [
            self.denied,
            self.would_deny,
            self.warned,
            self.patched,
            self.other,
        ];
        cells.extend(counts.map(|count| count.to_string()));
        cells.extend(last);
        cells
    }

    /// Worst first.
    fn rank(&self) -> impl Ord + use<> {
        let counts = (
            self.denied,
            self.would_deny,
            self.warned,
            self.patched,
            self.other,
        );
        std::cmp::Reverse((self.severity, counts))
    }
}

impl ScanText<'_> {
    fn write(&mut self) -> io::Result<()> {
        self.summary()?;
        if let Some(changes) = &self.report.changes {
            changes_text(changes, self.shown, self.out)?;
            self.gaps()?;
            return self.notes();
        }
        // What is broken now comes before what would be denied one day.
        self.pods()?;
        self.by_rule()?;
        self.by_namespace()?;
        self.namespaces()?;
        self.nodes()?;
        self.gaps()?;
        self.notes()
    }

    fn summary(&mut self) -> io::Result<()> {
        let ScanReport { cluster, summary, .. } = self.report;
        writeln!(
            self.out,
            "{BOLD}{}{BOLD:#} (Kubernetes {}): {}, {} of pods, {} for Windows: {}",
            one_line(&cluster.name),
            cluster.kubernetes,
            count(summary.objects, "object"),
            count(summary.owners, "owner"),
            summary.windows,
            outcomes(self.report)
        )?;
        self.policies()?;
        if !cluster.has_webhooks {
            writeln!(
                self.out,
                "Transom's webhooks are not registered in this cluster: evaluated as if they were"
            )?;
        }
        if summary.denied > 0 || summary.would_be_denied > 0 {
            writeln!(
                self.out,
                "only creates are denied: new objects, delete and apply, restored backups. An update that leaves an existing \
                 problem unchanged passes, and so does what a controller creates for an owner listed here{}",
                self.except_unlisted()
            )?;
        }
        writeln!(self.out)
    }

    /// The owners whose next rollout is denied.
    fn except_unlisted(&self) -> String {
        let owners = self.report.owners.iter();
        let unlisted = owners.filter(|owner| owner.unlisted_controller.is_some()).count();
        if unlisted == 0 {
            return String::new();
        }
        format!(
            ", except for {}: the next rollout is denied",
            count(unlisted, "custom resource")
        )
    }

    /// By which policies the objects are evaluated, unless every namespace has a stored one.
    fn policies(&mut self) -> io::Result<()> {
        let ScanReport { cluster, assumed, .. } = self.report;
        if !assumed.is_empty() {
            let assumed = assumed.join(", ");
            writeln!(
                self.out,
                "evaluated as if every policy had {}",
                one_line(&assumed)
            )?;
        } else if !self.report.could_read(POLICIES) {
            writeln!(
                self.out,
                "the WindowsPodPolicies could not be read, see below: evaluated as if there were none"
            )?;
        } else if cluster.policies.is_empty() {
            writeln!(
                self.out,
                "no WindowsPodPolicy exists: evaluated without one, as in the cluster: nothing is denied or changed"
            )?;
        }
        let without = &cluster.namespaces_without_policy;
        if without.is_empty() {
            return Ok(());
        }
        writeln!(
            self.out,
            "{} without a policy: {}; nothing is denied or changed there",
            count(without.len(), "namespace"),
            one_line(&list(without, NAMESPACES))
        )
    }

    fn namespaces(&mut self) -> io::Result<()> {
        let mut owners: BTreeMap<&str, Vec<&OwnerResult>> = BTreeMap::new();
        for owner_result in &self.report.owners {
            owners
                .entry(&owner_result.namespace)
                .or_default()
                .push(owner_result);
        }
        let sums = sums_of_namespaces(self.report);
        let mut namespaces: Vec<&NamespaceReport> = self.report.namespaces.iter().collect();
        namespaces.sort_by_key(|namespace| sums.get(namespace.name.as_str()).map(ScanTotals::rank));
        for namespace in namespaces {
            if let Some(owners) = owners.get(namespace.name.as_str()) {
                self.namespace(namespace, owners)?;
            }
        }
        Ok(())
    }

    /// The rules, worst first.
    fn by_rule(&mut self) -> io::Result<()> {
        let rules = sums_of_rules(self.report, self.shown);
        let findings = self.report.owners.iter().flat_map(|owner| &owner.findings);
        let hidden = findings.filter(|found| !self.shown.shows_finding(found)).count();
        if !rules.is_empty() {
            writeln!(self.out, "{BOLD}workloads by rule, worst first{BOLD:#}")?;
            let rows = rules.iter().map(|(rule, sum)| {
                let severity = sum.severity.map(|severity| severity.to_string());
                let names = vec![severity.unwrap_or_default(), format!("{rule} ({})", sum.id)];
                let namespaces = one_line(&list(&sum.namespaces, NAMESPACES_OF_RULE)).into_owned();
                sum.cells(names, Some(namespaces))
            });
            let headings = [
                "SEVERITY",
                "RULE",
                "DENIED",
                "WOULD DENY",
                "WARNED",
                "FIXED",
                "OTHER",
                "NAMESPACES",
            ];
            self.table(&headings, rows.collect())?;
        }
        if hidden > 0 {
            writeln!(self.out, "  {hidden} advice not shown; --advice shows it")?;
        }
        if !rules.is_empty() || hidden > 0 {
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// The namespaces, worst first.
    fn by_namespace(&mut self) -> io::Result<()> {
        let sums = sums_of_namespaces(self.report);
        let mut sums: Vec<(&str, ScanTotals<'_>)> = sums.into_iter().collect();
        sums.sort_by_cached_key(|(_, sum)| sum.rank());
        if sums.len() < 2 {
            return Ok(());
        }
        writeln!(self.out, "{BOLD}workloads by namespace, worst first{BOLD:#}")?;
        let headings = ["NAMESPACE", "DENIED", "WOULD DENY", "WARNED", "PATCHED", "OTHER"];
        let rows = sums
            .iter()
            .map(|(name, sum)| sum.cells(vec![one_line(name).into_owned()], None));
        self.table(&headings, rows.collect())?;
        writeln!(self.out)
    }

    /// Writes the first rows of a table, and the number of the others.
    fn table(&mut self, headings: &[&str], rows: Vec<Vec<String>>) -> io::Result<()> {
        let number = rows.len();
        let mut table = TextTable::new(headings.iter().map(ToString::to_string).collect());
        for cells in rows.into_iter().take(self.shown.rows) {
            table.row(cells);
        }
        table.write(self.out)?;
        self.more(number)
    }

    /// The number of rows of a table that are not shown.
    fn more(&mut self, rows: usize) -> io::Result<()> {
        match rows.saturating_sub(self.shown.rows) {
            0 => Ok(()),
            more => writeln!(self.out, "  and {more} more; --limit 0 shows all"),
        }
    }

    fn namespace(&mut self, namespace: &NamespaceReport, owners: &[&OwnerResult]) -> io::Result<()> {
        let name = one_line(&namespace.name);
        // "Built-in" is the name of the policy if no policy is stored.
        let is_stored = self.report.cluster.policies.contains(&namespace.policy);
        let policy = if is_stored {
            format!("policy {}", one_line(&namespace.policy))
        } else if !self.report.could_read(POLICIES) {
            "policy not known".to_owned()
        } else {
            "no policy".to_owned()
        };
        match &namespace.not_reviewed {
            Some(why) => writeln!(
                self.out,
                "{BOLD}namespace {name}{BOLD:#}: admission is not called: {}",
                one_line(why)
            )?,
            None => writeln!(
                self.out,
                "{BOLD}namespace {name}{BOLD:#} ({}: validation {}, placement {})",
                policy, namespace.validation, namespace.placement
            )?,
        }
        let shown = self.shown;
        let (with_findings, others): (Vec<&OwnerResult>, Vec<&OwnerResult>) = owners
            .iter()
            .copied()
            .partition(|owner_result| shown.shows_owner(owner_result));
        let groups = groups(&with_findings);
        for (_, group) in groups.iter().take(self.shown.rows) {
            if let Some((first, others)) = group.split_first() {
                self.owner(first, others)?;
            }
        }
        self.more(groups.len())?;
        let (clean, advised): (Vec<&OwnerResult>, Vec<&OwnerResult>) = others
            .into_iter()
            .partition(|owner_result| owner_result.is_clean());
        // Without a finding, only owners for Windows are in the report.
        for (owners, what, of_what) in [
            (clean, "nothing found in", " for Windows"),
            (advised, "only advice for", ""),
        ] {
            if !owners.is_empty() {
                let named = list(owners.iter().map(|owner_result| title(owner_result)), LIKE_IT);
                let number = count(owners.len(), "owner");
                writeln!(self.out, "  {what} {number}{of_what}: {}", one_line(&named))?;
            }
        }
        writeln!(self.out)
    }

    fn owner(&mut self, owner_result: &OwnerResult, others: &[&OwnerResult]) -> io::Result<()> {
        let has_pod = owner_result.kind.has_pod();
        let becomes = match owner_result.outcome {
            _ if !has_pod => "is not reviewed in admission",
            OwnerOutcome::Denied => "would be denied",
            OwnerOutcome::Patched => "would be patched",
            OwnerOutcome::Passes if owner_result.findings.iter().any(|found| found.would_deny) => {
                "passes; would be denied in mode Enforce"
            }
            OwnerOutcome::Passes => "passes",
            OwnerOutcome::NotReviewed => "passes: admission is not called",
        };
        let system = match owner_result.verdict {
            _ if !has_pod => "",
            Verdict::Windows => "",
            Verdict::Linux => ", Linux",
            Verdict::Unknown => ", of no known operating system",
            Verdict::Conflicting => ", Windows or Linux",
        };
        let title = title(owner_result);
        writeln!(self.out, "  {BOLD}{} {becomes}{BOLD:#}{system}", one_line(&title))?;
        for found in owner_result
            .findings
            .iter()
            .filter(|found| self.shown.shows_finding(found))
        {
            Self::finding(self.out, found)?;
        }
        if let Some(kind) = &owner_result.unlisted_controller {
            let becomes = match owner_result.outcome {
                OwnerOutcome::Denied => "is denied too",
                _ => "would be denied too in mode Enforce",
            };
            let text = format!(
                "{becomes}: list the account of the controller of {kind} in cluster.controllers of the chart's values"
            );
            labelled(self.out, 4, "next rollout:", &text)?;
        }
        for (fields, word) in [
            (&owner_result.patches, "patched:"),
            (&owner_result.would_patch, "patched if not in dry run:"),
        ] {
            if !fields.is_empty() {
                labelled(self.out, 4, word, &list(fields, FIELDS))?;
            }
        }
        let names: Vec<String> = others.iter().map(|other| self::title(other)).collect();
        self.others("like it", &names)
    }

    /// What is the same for others.
    fn others(&mut self, how: &str, names: &[String]) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let (number, names) = (names.len(), list(names, LIKE_IT));
        writeln!(self.out, "    and {number} more {how}: {}", one_line(&names))
    }

    fn finding(out: &mut dyn Write, found: &FindingResult) -> io::Result<()> {
        let style = style_of(found.severity);
        writeln!(
            out,
            "    {style}{}[{} {}]{style:#} ({}){BOLD}: {}{BOLD:#}",
            found.severity,
            found.id,
            found.rule,
            outcome(found.outcome),
            one_line(&found.message)
        )?;
        labelled(out, 6, "field:", &found.path)?;
        help(out, 6, &found.remedy)?;
        // The line of the namespace already gives the reason why admission does not review it.
        match &found.outcome_reason {
            Some(reason) if found.outcome != FindingOutcome::NotReviewed => labelled(out, 6, "note:", reason),
            _ => Ok(()),
        }
    }

    fn pods(&mut self) -> io::Result<()> {
        let (misplaced, waiting): (Vec<&PodFinding>, Vec<&PodFinding>) = self
            .report
            .pods
            .iter()
            .partition(|pod| pod.problem.is_misplaced());
        self.troubles("pods on a node that cannot run them", &misplaced)?;
        self.troubles("pods that cannot start", &waiting)
    }

    fn troubles(&mut self, heading: &str, pods: &[&PodFinding]) -> io::Result<()> {
        if pods.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{BOLD}{heading}{BOLD:#}")?;
        let red = AnsiColor::Red.on_default().bold();
        for (pod, others) in pods_of_owners(pods) {
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
            help(self.out, 4, &pod.remedy)?;
            let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
            self.others("of it", &others)?;
        }
        writeln!(self.out)
    }

    /// The Windows nodes by build, in one table.
    fn nodes(&mut self) -> io::Result<()> {
        if self.report.nodes.is_empty() {
            return Ok(());
        }
        let mut builds: BTreeMap<(Option<&str>, bool), Vec<&ScannedNode>> = BTreeMap::new();
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
        self.node_notes()?;
        writeln!(self.out)
    }

    /// The dates of the platform, the problems and the findings, each with the nodes that it concerns.
    fn node_notes(&mut self) -> io::Result<()> {
        let mut notes: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for node in &self.report.nodes {
            for note in node.platform_dates.iter().chain(&node.problems) {
                notes.entry(note).or_default().push(&node.name);
            }
        }
        for (note, nodes) in notes {
            let nodes = list(nodes, POOLS);
            writeln!(self.out, "  {} ({})", one_line(note), one_line(&nodes))?;
        }
        for found in &self.report.node_findings {
            let NodeFinding {
                id,
                rule,
                severity,
                message,
                nodes,
                ..
            } = found;
            let nodes = list(nodes, POOLS);
            writeln!(
                self.out,
                "  {severity}[{id} {rule}]: {} ({})",
                one_line(message),
                one_line(&nodes)
            )?;
            help(self.out, 4, &found.remedy)?;
        }
        for line in self.report.knowledge.lines() {
            writeln!(self.out, "  {}", one_line(&line))?;
        }
        Ok(())
    }

    fn gaps(&mut self) -> io::Result<()> {
        if self.report.gaps.is_empty() {
            return Ok(());
        }
        let yellow = AnsiColor::Yellow.on_default().bold();
        writeln!(
            self.out,
            "{BOLD}not read or evaluated{BOLD:#}: the report is complete except for this"
        )?;
        for gap in &self.report.gaps {
            writeln!(
                self.out,
                "  {yellow}{}{yellow:#}: {}",
                one_line(&gap.resource),
                one_line(&gap.reason)
            )?;
            if let Some(remedy) = &gap.remedy {
                help(self.out, 4, remedy)?;
            }
        }
        writeln!(self.out)
    }

    fn notes(&mut self) -> io::Result<()> {
        for note in &self.report.notes {
            writeln!(self.out, "note: {}", one_line(note))?;
        }
        Ok(())
    }
}

/// The outcomes of the owners and the problems of their pods, as the end of a sentence.
fn outcomes(report: &ScanReport) -> String {
    let summary = &report.summary;
    let would = summary.would_be_denied.saturating_sub(summary.denied);
    let of_owners = [
        (summary.denied, "would be denied at the next create"),
        (would, "would be denied in mode Enforce"),
        (summary.patched, "patched"),
        (summary.warned, "warned of"),
        (
            summary.not_reviewed,
            "with findings where admission is not called",
        ),
    ];
    let of_others = [
        (summary.misplaced, "pod", "on a node that cannot run them"),
        (summary.pending, "pod", "that cannot start"),
        (summary.terminating, "pod", "past their grace period"),
        (summary.unreadable, "object", "that cannot be read"),
    ];
    let of_owners = of_owners.into_iter().filter(|(number, _)| *number > 0);
    let of_others = of_others.into_iter().filter(|(number, ..)| *number > 0);
    let parts: Vec<String> = (of_owners.map(|(number, what)| format!("{number} {what}")))
        .chain(of_others.map(|(number, noun, what)| format!("{} {what}", count(number, noun))))
        .collect();
    if !parts.is_empty() {
        return parts.join(", ");
    }
    if summary.objects == 0 && !report.gaps.is_empty() {
        return "no object could be read, see below".to_owned();
    }
    match summary.findings.values().sum::<usize>() {
        0 if !report.gaps.is_empty() => "nothing found in what could be read, see below".to_owned(),
        0 => "nothing found".to_owned(),
        findings => format!(
            "nothing would be denied, patched or warned of; {}",
            count(findings, "finding")
        ),
    }
}

/// The totals of the rules with a finding to show, worst first. If an owner has several findings of a rule, the worst counts.
fn sums_of_rules(report: &ScanReport, shown: ScanView) -> Vec<(&str, ScanTotals<'_>)> {
    let mut rules: BTreeMap<&str, ScanTotals<'_>> = BTreeMap::new();
    for owner_result in &report.owners {
        let mut worst_of: BTreeMap<&str, &FindingResult> = BTreeMap::new();
        for found in owner_result
            .findings
            .iter()
            .filter(|found| shown.shows_finding(found))
        {
            let rank = |found: &FindingResult| (found.severity, std::cmp::Reverse(found.outcome));
            let worst = worst_of.entry(found.rule).or_insert(found);
            if rank(found) > rank(worst) {
                *worst = found;
            }
        }
        for (rule, found) in worst_of {
            let sum = rules.entry(rule).or_default();
            sum.severity = sum.severity.max(Some(found.severity));
            sum.id = found.id;
            sum.namespaces.insert(&owner_result.namespace);
            match found.outcome {
                FindingOutcome::Denied => sum.denied += 1,
                _ if found.would_deny => sum.would_deny += 1,
                FindingOutcome::Warned => sum.warned += 1,
                FindingOutcome::Fixed | FindingOutcome::Fixable => sum.patched += 1,
                FindingOutcome::Audited
                | FindingOutcome::Reported
                | FindingOutcome::Exempted
                | FindingOutcome::NotReviewed => sum.other += 1,
            }
        }
    }
    let mut rules: Vec<(&str, ScanTotals<'_>)> = rules.into_iter().collect();
    rules.sort_by_cached_key(|(_, sum)| sum.rank());
    rules
}

/// The totals of the namespaces with an owner to report.
fn sums_of_namespaces(report: &ScanReport) -> BTreeMap<&str, ScanTotals<'_>> {
    let mut sums: BTreeMap<&str, ScanTotals<'_>> = BTreeMap::new();
    for owner_result in &report.owners {
        let sum = sums.entry(&owner_result.namespace).or_default();
        let would_deny = owner_result.findings.iter().any(|found| found.would_deny);
        let is_warned = owner_result
            .findings
            .iter()
            .any(|found| found.outcome == FindingOutcome::Warned);
        match owner_result.outcome {
            OwnerOutcome::Denied => sum.denied += 1,
            _ if would_deny => sum.would_deny += 1,
            _ if is_warned => sum.warned += 1,
            OwnerOutcome::Patched => sum.patched += 1,
            OwnerOutcome::Passes | OwnerOutcome::NotReviewed => sum.other += 1,
        }
    }
    sums
}

/// The common part of owners that are shown together.
#[derive(PartialEq)]
struct GroupedFinding<'j> {
    outcome: OwnerOutcome,
    kind: &'static str,
    findings: Vec<(&'static str, FindingOutcome, bool, &'j str)>,
    patches: (&'j [String], &'j [String]),
}

impl<'j> GroupedFinding<'j> {
    /// How many findings would deny in mode Enforce.
    fn would_deny(&self) -> usize {
        self.findings
            .iter()
            .filter(|(_, _, would_deny, _)| *would_deny)
            .count()
    }

    fn of(owner_result: &'j OwnerResult) -> Self {
        let finding = |found: &'j FindingResult| {
            let reason = found.outcome_reason.as_deref().unwrap_or_default();
            (found.id, found.outcome, found.would_deny, reason)
        };
        let mut findings: Vec<_> = owner_result.findings.iter().map(finding).collect();
        findings.dedup();
        GroupedFinding {
            outcome: owner_result.outcome,
            kind: owner_result.kind.as_str(),
            findings,
            patches: (&owner_result.patches, &owner_result.would_patch),
        }
    }
}

/// The first pod of each owner with a problem, and the names of the other pods that have the same one.
fn pods_of_owners<'r>(pods: &[&'r PodFinding]) -> Vec<(&'r PodFinding, Vec<&'r str>)> {
    let mut groups: Vec<(&PodFinding, Vec<&str>)> = Vec::new();
    for pod in pods {
        let is_like = |other: &PodFinding| {
            pod.owner.is_some()
                && (&other.namespace, &other.owner) == (&pod.namespace, &pod.owner)
                && (other.problem, &other.message) == (pod.problem, &pod.message)
        };
        match groups.iter_mut().find(|(other, _)| is_like(other)) {
            Some((_, others)) => others.push(&pod.name),
            None => groups.push((pod, Vec::new())),
        }
    }
    groups
}

/// The owners that are shown together, worst first.
fn groups<'r>(owners: &[&'r OwnerResult]) -> Vec<(GroupedFinding<'r>, Vec<&'r OwnerResult>)> {
    let mut groups: Vec<(GroupedFinding<'_>, Vec<&OwnerResult>)> = Vec::new();
    for owner_result in owners.iter().copied() {
        let likeness = GroupedFinding::of(owner_result);
        match groups.iter_mut().find(|(other, _)| *other == likeness) {
            Some((_, group)) => group.push(owner_result),
            None => groups.push((likeness, vec![owner_result])),
        }
    }
    groups.sort_by_key(|(likeness, _)| (likeness.outcome, std::cmp::Reverse(likeness.would_deny())));
    groups
}

fn title(owner_result: &OwnerResult) -> String {
    let represented = owner_result
        .owner
        .as_ref()
        .map(|owner| format!(" of {} {}", owner.kind, owner.name));
    let why = if owner_result.is_added_evidence {
        ", whose template does not show that it is for Windows"
    } else if owner_result.differs_from_template {
        ", whose template does not have these fields: its ControllerRevision is older or was changed, or an injector added them"
    } else {
        ""
    };
    format!(
        "{} {}{}{why}",
        owner_result.kind,
        owner_result.name,
        represented.unwrap_or_default()
    )
}

fn unique<'t>(texts: impl Iterator<Item = &'t String>) -> Vec<&'t String> {
    let mut texts: Vec<&String> = texts.collect();
    texts.sort();
    texts.dedup();
    texts
}
