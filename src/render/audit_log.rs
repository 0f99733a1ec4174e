//! The report of audit logs for people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use jiff::Timestamp;

use crate::audit_log::{
    AuditReport, ClusterRecord, CurrentState, InputResult, OutcomeCounts, RequestOutcome, RuleCount,
    TimeSpan, WorkloadRow,
};
use crate::model::syntax::text::{count, cut_middle, list, one_line};
use crate::render::table::TextTable;

/// What the rows of the table are grouped by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum AuditGroupBy {
    Namespace,
    Workload,
    User,
    Rule,
}

/// How the rows of the report are grouped, and how many are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditLogView {
    /// The grouping of rows.
    pub by: AuditGroupBy,
    /// The maximum number of rows.
    pub most: usize,
}

/// The column heading of each outcome, and its wording in a sentence.
const OUTCOMES: [(RequestOutcome, &str, &str); RequestOutcome::ALL.len()] = [
    (RequestOutcome::Denied, "DENIED", "denied"),
    (RequestOutcome::WouldDeny, "WOULD-DENY", "would be denied"),
    (RequestOutcome::Patched, "PATCHED", "patched"),
    (RequestOutcome::WouldPatch, "WOULD-PATCH", "would be patched"),
    (RequestOutcome::Removed, "REMOVED", "with fields removed"),
    (RequestOutcome::Withheld, "WITHHELD", "with spec.os.name withheld"),
    (RequestOutcome::Exempted, "EXEMPTED", "exempted"),
    (
        RequestOutcome::OwnerNotTrusted,
        "OWNER?",
        "of an owner that is not trusted",
    ),
    (RequestOutcome::NotEvaluated, "NOT-EVALUATED", "not evaluated"),
    (
        RequestOutcome::FailedOpen,
        "FAILED-OPEN",
        "failed open (not answered, let pass)",
    ),
    (
        RequestOutcome::FailedClosed,
        "FAILED-CLOSED",
        "failed closed (not answered, refused)",
    ),
    (
        RequestOutcome::RefusedOtherwise,
        "REFUSED-OTHERWISE",
        "refused by the API server or another webhook",
    ),
];

/// The totals of one row.
#[derive(Default)]
struct AuditTotals<'r> {
    counts: OutcomeCounts,
    rule: RuleCount,
    span: TimeSpan,
    workloads: BTreeSet<(&'r str, &'r str)>,
    /// The users, with the number of their requests that were or would have been denied.
    users: BTreeMap<&'r str, u64>,
    rules: BTreeMap<&'r str, u64>,
    now: Option<&'r CurrentState>,
}

/// Writes the report.
///
/// # Errors
/// The errors of `out`.
pub fn text(report: &AuditReport, shown: AuditLogView, out: &mut dyn Write) -> io::Result<()> {
    for input in &report.inputs {
        write_troubles(input, out)?;
    }
    let lines: u64 = report.inputs.iter().map(|input| input.lines).sum();
    writeln!(
        out,
        "read: {}, {}, {}",
        count(report.inputs.len(), "file"),
        count(lines, "line"),
        over(&report.span)
    )?;
    if !report.deduplicated {
        writeln!(
            out,
            "note: more events than Transom remembers; one that is in two files may be counted twice"
        )?;
    }
    let has_events = report.inputs.iter().any(|input| input.has_events);
    if report.clusters.is_empty() && has_events {
        writeln!(
            out,
            "no event mentions Transom. Does the API server's audit policy have pods and workloads at the level Metadata \
             or above, and are the webhooks registered?"
        )?;
        return Ok(());
    }
    for cluster in &report.clusters {
        if report.clusters.len() > 1 || !cluster.name.is_empty() {
            writeln!(out, "\ncluster {}", unnamed(&cluster.name))?;
        }
        let rows = report.rows.iter().filter(|row| row.cluster == cluster.name);
        write_cluster(cluster, &rows.collect::<Vec<_>>(), shown, out)?;
    }
    Ok(())
}

fn write_cluster(
    cluster: &ClusterRecord,
    rows: &[&WorkloadRow],
    shown: AuditLogView,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{} that Transom evaluated or missed{}",
        count(cluster.counts.requests, "request"),
        sentence(&cluster.counts)
    )?;
    if cluster.dry_runs.requests > 0 {
        let (number, outcomes) = (cluster.dry_runs.requests, sentence(&cluster.dry_runs));
        writeln!(out, "dry runs, not among these: {number}{outcomes}")?;
    }
    let now = now(rows);
    if !now.is_empty() {
        writeln!(out, "workloads that were denied or would be, now: {now}")?;
    }
    write_table(rows, shown, out)?;
    let missing = &cluster.kinds_without_events;
    if !missing.is_empty() {
        writeln!(
            out,
            "note: no event of these kinds mentions Transom: {}; if somebody wrote such objects for Windows, the audit policy \
             omits them: record them at the level Metadata or above",
            missing.join(", ")
        )?;
    }
    if cluster.unlisted.requests > 0 {
        writeln!(
            out,
            "note: {} of more workloads and users than can be listed are in the totals only; select fewer with \
             --namespace or --since",
            count(cluster.unlisted.requests, "request")
        )?;
    }
    Ok(())
}

fn write_troubles(input: &InputResult, out: &mut dyn Write) -> io::Result<()> {
    let name = one_line(&input.name);
    if let Some(error) = &input.error {
        let error = one_line(error);
        writeln!(out, "error: {name}: {error}")?;
    }
    if input.invalid > 0 {
        let (invalid, first) = (count(input.invalid, "line"), input.first_invalid);
        writeln!(
            out,
            "note: {name}: {invalid} cannot be read as audit events, the first is line {first}"
        )?;
    }
    if input.too_long > 0 {
        writeln!(
            out,
            "note: {name}: {} too long to be read",
            count(input.too_long, "line")
        )?;
    }
    if input.is_truncated {
        writeln!(out, "note: {name}: its end is cut off")?;
    }
    Ok(())
}

fn write_table(rows: &[&WorkloadRow], shown: AuditLogView, out: &mut dyn Write) -> io::Result<()> {
    let sums = sums(rows, shown.by);
    let mut sums: Vec<(&Vec<&str>, &AuditTotals<'_>)> = sums.iter().collect();
    if sums.is_empty() {
        return Ok(());
    }
    sums.sort_by_key(|(_, sum)| {
        let denials = sum.counts.denials() + sum.rule.denied + sum.rule.would_deny;
        [denials, sum.counts.changes()].map(std::cmp::Reverse)
    });
    let is_had = |outcome| sums.iter().any(|(_, sum)| sum.counts.of(outcome) > 0);
    let occurred = OUTCOMES.into_iter().filter(|(outcome, _, _)| is_had(*outcome));
    let columns = Columns::new(shown.by, occurred);
    let mut table = TextTable::new(columns.headings()).cutting(&[0, 1]);
    for (key, sum) in sums.iter().take(shown.most) {
        table.row_with_details(columns.cells(key, sum), &columns.details(sum));
    }
    table.write(out)?;
    if let Some(more) = sums.len().checked_sub(shown.most).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more; --limit shows more of them, -o json all")?;
    }
    Ok(())
}

/// The columns of a table. What does not fit next to the names is written below each row.
struct Columns {
    by: AuditGroupBy,
    /// The outcomes with a column.
    outcomes: Vec<(RequestOutcome, &'static str, &'static str)>,
    /// The outcomes that are written below the row.
    others: Vec<(RequestOutcome, &'static str, &'static str)>,
}

impl Columns {
    /// The maximum total width of the outcome columns, so that names and times fit into [`TextTable::WIDTH`].
    const OUTCOMES_WIDTH: usize = 52;

    fn new(
        by: AuditGroupBy,
        occurred: impl Iterator<Item = (RequestOutcome, &'static str, &'static str)>,
    ) -> Self {
        let mut columns = Columns {
            by,
            outcomes: Vec::new(),
            others: Vec::new(),
        };
        let mut width = 0;
        for outcome in occurred {
            width += outcome.1.len() + 2;
            if by != AuditGroupBy::Rule && width <= Self::OUTCOMES_WIDTH {
                columns.outcomes.push(outcome);
            } else if by != AuditGroupBy::Rule {
                columns.others.push(outcome);
            }
        }
        columns
    }

    fn headings(&self) -> Vec<String> {
        let mut headings = match self.by {
            AuditGroupBy::Namespace => vec!["NAMESPACE", "WORKLOADS"],
            AuditGroupBy::Workload => vec!["NAMESPACE", "WORKLOAD"],
            AuditGroupBy::User => vec!["USER", "WORKLOADS"],
            AuditGroupBy::Rule => vec!["RULE", "WORKLOADS", "DENIED", "WOULD-DENY", "FIRST SEEN"],
        };
        headings.extend(self.outcomes.iter().map(|(_, heading, _)| heading));
        headings.push("LAST SEEN");
        headings.into_iter().map(str::to_owned).collect()
    }

    fn cells(&self, key: &[&str], sum: &AuditTotals<'_>) -> Vec<String> {
        let mut cells: Vec<String> = key.iter().map(|part| name(part)).collect();
        if let (AuditGroupBy::Workload, Some(workload)) = (self.by, cells.last_mut())
            && let Some(kind) = workload.strip_suffix(" *")
        {
            *workload = format!("{kind} (no name in the log)");
        }
        if self.by != AuditGroupBy::Workload {
            cells.push(sum.workloads.len().to_string());
        }
        if self.by == AuditGroupBy::Rule {
            cells.extend([sum.rule.denied, sum.rule.would_deny].map(|count| count.to_string()));
            cells.push(moment(sum.span.first_seen));
        }
        let counts = self
            .outcomes
            .iter()
            .map(|(outcome, _, _)| sum.counts.of(*outcome));
        cells.extend(counts.map(|count| count.to_string()));
        cells.push(moment(sum.span.last_seen));
        cells
    }

    /// The text below a row, the most useful first: the users, denied ones first; rules; the current state;
    /// outcomes without a column; the first time.
    fn details(&self, sum: &AuditTotals<'_>) -> String {
        if self.by == AuditGroupBy::Rule {
            return String::new();
        }
        let mut details = Vec::new();
        if self.by != AuditGroupBy::User {
            let mut users: Vec<_> = sum.users.iter().collect();
            users.sort_by_key(|(_, denials)| std::cmp::Reverse(**denials));
            details.push(format!(
                "by {}",
                list(users.iter().map(|(user, _)| name(user)), 2)
            ));
        }
        if !sum.rules.is_empty() {
            details.push(format!("rules: {}", rules(&sum.rules)));
        }
        if let (AuditGroupBy::Workload, Some(now)) = (self.by, sum.now) {
            details.push(format!("now {}", in_words(now)));
        }
        for (outcome, _, words) in &self.others {
            let count = sum.counts.of(*outcome);
            if count > 0 {
                details.push(format!("{count} {words}"));
            }
        }
        details.push(format!("first seen {}", moment(sum.span.first_seen)));
        details.join("; ")
    }
}

/// The rows of a table by group. Requests that were allowed without findings are only in the totals.
fn sums<'r>(rows: &[&'r WorkloadRow], by: AuditGroupBy) -> BTreeMap<Vec<&'r str>, AuditTotals<'r>> {
    let mut sums: BTreeMap<Vec<&str>, AuditTotals<'_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.counts.is_relevant()) {
        let (namespace, workload) = (row.namespace.as_str(), row.workload.as_str());
        if by == AuditGroupBy::Rule {
            for (name, rule) in &row.rules {
                let sum = sums.entry(vec![name]).or_default();
                sum.rule.add(rule);
                sum.span.join(&rule.span);
                sum.workloads.insert((namespace, workload));
            }
            continue;
        }
        let key = match by {
            AuditGroupBy::Namespace => vec![namespace],
            AuditGroupBy::User => vec![row.user.as_str()],
            AuditGroupBy::Workload | AuditGroupBy::Rule => vec![namespace, workload],
        };
        let sum = sums.entry(key).or_default();
        sum.counts.add(&row.counts);
        sum.span.join(&row.span);
        sum.workloads.insert((namespace, workload));
        *sum.users.entry(&row.user).or_default() += row.counts.denials();
        sum.now = sum.now.or(row.current.as_ref());
        for (name, rule) in &row.rules {
            *sum.rules.entry(name).or_default() += rule.denied + rule.would_deny;
        }
    }
    sums
}

fn in_words(now: &CurrentState) -> String {
    match now {
        CurrentState::Open { rules } => format!("open: {}", list(rules, 4)),
        CurrentState::Unknown { reason } => format!("unknown: {}", one_line(reason)),
        CurrentState::Fixed | CurrentState::Gone => now.as_str().to_owned(),
    }
}

/// The number of workloads by current state, as a sentence; empty if the state was not requested.
fn now(rows: &[&WorkloadRow]) -> String {
    let mut workloads: BTreeMap<(&str, &str), &CurrentState> = BTreeMap::new();
    for row in rows {
        if let Some(now) = &row.current {
            workloads.insert((&row.namespace, &row.workload), now);
        }
    }
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for now in workloads.values() {
        *states.entry(now.as_str()).or_default() += 1;
    }
    let listed = states.iter().map(|(state, count)| format!("{count} {state}"));
    listed.collect::<Vec<_>>().join(", ")
}

/// The rules, most frequent first.
fn rules(rules: &BTreeMap<&str, u64>) -> String {
    const MOST: usize = 6;
    let mut rules: Vec<_> = rules.iter().collect();
    rules.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    list(rules.iter().map(|(name, count)| format!("{name} {count}")), MOST)
}

/// The outcomes of requests, as the end of a sentence.
fn sentence(counts: &OutcomeCounts) -> String {
    let listed: Vec<String> = (OUTCOMES.iter())
        .filter(|(outcome, _, _)| counts.of(*outcome) > 0)
        .map(|(outcome, _, words)| format!("{} {words}", counts.of(*outcome)))
        .collect();
    if listed.is_empty() {
        String::new()
    } else {
        format!(": {}", listed.join(", "))
    }
}

fn name(text: &str) -> String {
    /// Keeps the columns within the width of a terminal.
    const LONGEST: usize = 60;
    if text.is_empty() {
        return "-".to_owned();
    }
    cut_middle(text, LONGEST, 30).into_owned()
}

fn unnamed(name: &str) -> &str {
    if name.is_empty() { "without a name" } else { name }
}

fn over(span: &TimeSpan) -> String {
    match span.first_seen {
        Some(first) => format!("{} to {}", moment(Some(first)), moment(span.last_seen)),
        None => "no audit event".to_owned(),
    }
}

/// With a precision of seconds: `2026-11-21T10:00:00Z`.
fn moment(time: Option<Timestamp>) -> String {
    let time = time.unwrap_or_default();
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string()
}
