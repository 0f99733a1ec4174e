//! Aggregates the events by cluster, namespace, workload, user and rule, in bounded memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::InputResult;
use super::counts::OutcomeCounts;
use super::event::{AuditEvent, ObjectRef};
use super::outcome::EventOutcome;
use super::remediation::CurrentState;
use crate::model::objects::requester::qualified;
use crate::model::objects::workload::{CUSTOM_WORKLOADS, Kind};
use crate::model::syntax::text::{cut, one_line};

/// The maximum number of rows. With the longest names, they and their rules take less than 400 MiB. Further
/// events are only in the totals.
const MOST_ROWS: usize = 100_000;
/// The maximum number of rules per row. The catalogue has fewer.
const MOST_RULES: usize = 500;
/// The maximum number of rules in all rows together.
const MOST_RULES_OF_ALL: usize = 500_000;
/// The maximum number of clusters.
const MOST_CLUSTERS: usize = 1000;
/// The maximum length of any name, in bytes.
const LONGEST: usize = 256;

/// Which events of the log are counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The start time, inclusive.
    pub since: Option<Timestamp>,
    /// The end time, exclusive.
    pub until: Option<Timestamp>,
    /// The namespaces; empty selects all.
    pub namespaces: Vec<String>,
}

impl Filter {
    /// Whether an event with this time and namespace is selected.
    pub fn lets_pass(&self, time: Timestamp, namespace: &str) -> bool {
        self.since.is_none_or(|since| time >= since)
            && self.until.is_none_or(|until| time < until)
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|known| known == namespace))
    }
}

/// A time span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeSpan {
    /// The time of the first event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub first_seen: Option<Timestamp>,
    /// The time of the last event; null without events.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_seen: Option<Timestamp>,
}

impl TimeSpan {
    /// Extends the span to a time.
    pub fn add(&mut self, time: Timestamp) {
        self.first_seen = Some(self.first_seen.map_or(time, |first| first.min(time)));
        self.last_seen = self.last_seen.max(Some(time));
    }

    /// Extends the span to another one.
    pub fn join(&mut self, other: &TimeSpan) {
        let ends = [other.first_seen, other.last_seen].into_iter().flatten();
        ends.for_each(|time| self.add(time));
    }
}

/// How often one rule denied, or would have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleCount {
    /// Requests that it denied.
    pub denied: u64,
    /// Requests that it would have denied with `validation.action: Deny`.
    pub would_deny: u64,
    /// The time span of these requests.
    #[serde(flatten)]
    pub span: TimeSpan,
}

/// A rule that denied requests, or would have.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RuleCounts")]
struct NamedRule<'r> {
    /// The name of the rule.
    rule: &'r str,
    #[serde(flatten)]
    count: &'r RuleCount,
}

fn listed<S: Serializer>(rules: &BTreeMap<String, RuleCount>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rules.iter().map(|(rule, count)| NamedRule { rule, count }))
}

/// A name that neither the arguments nor a log give is null.
pub(super) fn name_or_null<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    (!name.is_empty()).then_some(name).serialize(serializer)
}

impl RuleCount {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &RuleCount) {
        self.denied += other.denied;
        self.would_deny += other.would_deny;
        self.span.join(&other.span);
    }
}

/// A workload, and the requests of one user about it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Workload")]
pub struct WorkloadRow {
    /// The cluster; null if neither the argument nor the log names it.
    #[serde(serialize_with = "name_or_null")]
    #[schemars(with = "Option<String>")]
    pub cluster: String,
    /// Its namespace.
    pub namespace: String,
    /// Its kind and name, as in `Deployment web`.
    pub workload: String,
    /// The user who sent the requests.
    pub user: String,
    /// The requests by outcome.
    #[serde(rename = "summary")]
    pub counts: OutcomeCounts,
    /// The time span of the requests.
    #[serde(flatten)]
    pub span: TimeSpan,
    /// The rules that denied requests, or would have.
    #[serde(serialize_with = "listed")]
    #[schemars(with = "Vec<NamedRule<'_>>")]
    pub rules: BTreeMap<String, RuleCount>,
    /// Its current state; null without `--check-cluster`.
    pub current: Option<CurrentState>,
}

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Cluster")]
pub struct ClusterRecord {
    /// Its name; null if neither the argument nor the log names it.
    #[serde(serialize_with = "name_or_null")]
    #[schemars(with = "Option<String>")]
    pub name: String,
    /// Its requests by outcome, without dry runs.
    #[serde(rename = "summary")]
    pub counts: OutcomeCounts,
    /// Its requests with `--dry-run`.
    pub dry_runs: OutcomeCounts,
    /// The requests of workloads that are not listed, because the list has a maximum length.
    pub unlisted: OutcomeCounts,
    /// Kinds that the cluster has and of which there is no event, as in `Rollout.argoproj.io`: the audit policy may omit
    /// them.
    pub kinds_without_events: Vec<String>,
    /// The time span of its events.
    #[serde(flatten)]
    pub span: TimeSpan,
}

/// The schema of the report.
const SCHEMA: &str = "transom.dev/audit-log/v1";

/// What Transom did with the requests of audit logs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom audit-log -o json")]
pub struct AuditReport {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The requests by outcome, without dry runs.
    #[serde(rename = "summary")]
    pub counts: OutcomeCounts,
    /// The requests with `--dry-run`.
    pub dry_runs: OutcomeCounts,
    /// The time span of all inputs.
    #[serde(flatten)]
    pub span: TimeSpan,
    /// The clusters, by name.
    pub clusters: Vec<ClusterRecord>,
    /// The workloads that Transom denied or changed, or would have, by user.
    #[serde(rename = "workloads")]
    pub rows: Vec<WorkloadRow>,
    /// The logs that were read.
    pub inputs: Vec<InputResult>,
    /// The kinds of the objects of all events, as in `Rollout.argoproj.io`.
    #[serde(skip)]
    pub kinds: BTreeSet<String>,
    /// Whether every event was counted once. Above a number of events, those that several logs contain count again.
    pub deduplicated: bool,
}

impl AuditReport {
    /// Records that the cluster serves these kinds.
    pub fn serve(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        let Some(cluster) = self.clusters.first_mut() else {
            return;
        };
        for name in kinds.into_iter().map(qualified) {
            if !self.kinds.contains(&name) && !cluster.kinds_without_events.contains(&name) {
                cluster.kinds_without_events.push(name);
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct RowKey {
    cluster: usize,
    namespace: String,
    workload: String,
    user: String,
}

#[derive(Default)]
struct RowValue {
    counts: OutcomeCounts,
    span: TimeSpan,
    rules: BTreeMap<String, RuleCount>,
}

/// The kinds in the events of a cluster.
#[derive(Default)]
struct EventKinds {
    /// Of the objects of requests.
    own: HashSet<Kind>,
    /// Custom resources that own them, by the name of the kind: an event does not name the API group of an owner.
    owners: HashSet<Kind>,
}

impl EventKinds {
    fn add(&mut self, object: &ObjectRef<'_>, owner: Option<&str>) {
        let is_own = |kind: &Kind| *kind.group() == *object.api_group && kind.resource() == *object.resource;
        self.own.extend(Kind::ALL.into_iter().filter(is_own));
        let owner = owner.and_then(|owner| owner.split(' ').next());
        let custom = CUSTOM_WORKLOADS.iter().map(|custom| custom.kind);
        let is_owner = |kind: &Kind| Some(kind.as_str()) == owner && !kind.is_daemon_set();
        self.owners.extend(custom.filter(is_owner));
    }

    /// The kinds that people write and of which there is no event. Pods and ReplicaSets come from workloads.
    fn without_events(&self) -> Vec<String> {
        const KINDS: [Kind; 5] = [
            Kind::Deployment,
            Kind::StatefulSet,
            Kind::DaemonSet,
            Kind::Job,
            Kind::CronJob,
        ];
        let all = KINDS.iter().chain(&self.owners);
        let missing = all.filter(|kind| !self.own.contains(kind));
        missing.map(|kind| qualified(*kind)).collect()
    }
}

/// The state of the aggregation.
#[derive(Default)]
pub struct Aggregate {
    clusters: Vec<ClusterRecord>,
    /// Of each cluster.
    kinds: Vec<EventKinds>,
    rows: HashMap<RowKey, RowValue>,
    /// The number of rules in all rows.
    rules: usize,
}

impl Aggregate {
    /// Counts an event, with its outcome, for its cluster.
    pub fn add(
        &mut self,
        cluster: &str,
        time: Timestamp,
        event: &AuditEvent<'_>,
        event_outcome: &EventOutcome<'_>,
    ) {
        let index = self.cluster(cluster);
        let Some(cluster) = self.clusters.get_mut(index) else {
            return;
        };
        cluster.span.add(time);
        if let Some(kinds) = self.kinds.get_mut(index) {
            kinds.add(event.object(), event_outcome.owner);
        }
        if event.is_dry_run() {
            cluster.dry_runs.count(event_outcome.outcomes());
            return;
        }
        cluster.counts.count(event_outcome.outcomes());
        let key = RowKey {
            cluster: index,
            namespace: bounded(event.namespace()),
            workload: workload(event.object(), event_outcome.owner),
            user: bounded(event.user()),
        };
        if self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
            cluster.unlisted.count(event_outcome.outcomes());
            return;
        }
        let row = self.rows.entry(key).or_default();
        row.counts.count(event_outcome.outcomes());
        row.span.add(time);
        for (names, is_denied) in [
            (&event_outcome.denied_by, true),
            (&event_outcome.would_deny, false),
        ] {
            for name in names {
                let has_room = self.rules < MOST_RULES_OF_ALL;
                self.rules += usize::from(row.count(name, is_denied, time, has_room));
            }
        }
    }

    fn cluster(&mut self, name: &str) -> usize {
        let name = bounded(name);
        if let Some(index) = self.clusters.iter().position(|known| known.name == name) {
            return index;
        }
        if self.clusters.len() < MOST_CLUSTERS {
            self.clusters.push(ClusterRecord {
                name,
                ..ClusterRecord::default()
            });
            self.kinds.push(EventKinds::default());
        }
        self.clusters.len().saturating_sub(1)
    }

    /// The report: one row per user and workload, most denials first.
    pub fn finish(self, inputs: Vec<InputResult>, deduplicated: bool) -> AuditReport {
        let clusters = self.clusters;
        let named = |(key, value): (RowKey, RowValue)| WorkloadRow {
            cluster: clusters
                .get(key.cluster)
                .map_or(String::new(), |known| known.name.clone()),
            namespace: key.namespace,
            workload: key.workload,
            user: key.user,
            counts: value.counts,
            span: value.span,
            rules: value.rules,
            current: None,
        };
        let mut rows: Vec<WorkloadRow> = self.rows.into_iter().map(named).collect();
        rows.sort_by(|a, b| {
            let order = |row: &WorkloadRow| {
                let WorkloadRow { counts, .. } = row;
                [counts.denials(), counts.changes(), counts.unanswered()].map(std::cmp::Reverse)
            };
            let names = |row: &WorkloadRow| [&row.namespace, &row.workload, &row.user].map(Clone::clone);
            (a.cluster.cmp(&b.cluster))
                .then_with(|| order(a).cmp(&order(b)))
                .then_with(|| names(a).cmp(&names(b)))
        });
        let mut clusters = clusters;
        for (cluster, kinds) in clusters.iter_mut().zip(&self.kinds) {
            cluster.kinds_without_events = kinds.without_events();
        }
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        let mut span = TimeSpan::default();
        for input in &inputs {
            span.join(&input.span);
        }
        let own = self.kinds.iter();
        AuditReport {
            schema: SCHEMA,
            counts: clusters.iter().map(|cluster| cluster.counts).sum(),
            dry_runs: clusters.iter().map(|cluster| cluster.dry_runs).sum(),
            span,
            clusters,
            rows,
            inputs,
            kinds: own
                .flat_map(|kinds| kinds.own.iter().copied().map(qualified))
                .collect(),
            deduplicated,
        }
    }
}

impl RowValue {
    /// Counts a rule; returns whether it is new in this row.
    fn count(&mut self, name: &str, is_denied: bool, time: Timestamp, has_room: bool) -> bool {
        let name = bounded(name);
        let is_new = !self.rules.contains_key(&*name);
        if is_new && (!has_room || self.rules.len() >= MOST_RULES) {
            return false;
        }
        let rule = self.rules.entry(name).or_default();
        if is_denied {
            rule.denied += 1;
        } else {
            rule.would_deny += 1;
        }
        rule.span.add(time);
        is_new
    }
}

fn bounded(text: &str) -> String {
    cut(&one_line(&cut(text, LONGEST)), LONGEST).into_owned()
}

/// The workload of an object: the name of its owner, otherwise its own.
fn workload(object: &ObjectRef<'_>, owner: Option<&str>) -> String {
    let ObjectRef {
        resource,
        name,
        api_group,
        ..
    } = object;
    if let Some(owner) = owner {
        return bounded(owner);
    }
    let plural = |kind: &&Kind| {
        let word = kind.as_str();
        resource.len() == word.len() + 1
            && resource.ends_with('s')
            && resource
                .get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let kind = Kind::ALL.iter().find(plural).map(|kind| kind.as_str());
    let kind = match kind {
        Some(kind) => kind.to_owned(),
        None if api_group.is_empty() => resource.to_string(),
        None => format!("{resource}.{api_group}"),
    };
    let name = if name.is_empty() { "*" } else { name };
    bounded(&format!("{kind} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_with_a_long_name_is_one() {
        let mut gathered = Aggregate::default();
        for name in ["a".repeat(1000), "##[".repeat(1000), "short".to_owned()] {
            let first = gathered.cluster(&name);
            assert_eq!(gathered.cluster(&name), first);
        }
        assert_eq!(gathered.clusters.len(), 3);
        assert!(
            gathered
                .clusters
                .iter()
                .all(|cluster| cluster.name.len() <= LONGEST)
        );
    }

    #[test]
    fn a_rule_is_counted_on_where_there_is_no_room_for_another() {
        let mut row = RowValue::default();
        let time = Timestamp::UNIX_EPOCH;
        let long = "a".repeat(1000);
        assert!(row.count(&long, true, time, true));
        assert!(!row.count(&long, true, time, false));
        assert!(!row.count("another", true, time, false));
        let rules: Vec<(usize, u64)> = row
            .rules
            .iter()
            .map(|(name, rule)| (name.len(), rule.denied))
            .collect();
        assert_eq!(rules, [(LONGEST, 2)]);
    }
}
