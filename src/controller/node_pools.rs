//! Creates and deletes the observed `WindowsNodePool`s, and writes the statuses of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::Instant;

use super::conditions::{ConditionUpdate, conditions};
use super::events::{NewEvent, of_node};
use super::leader_loop::{Controller, PassResult};
use super::writer::{PlannedWrite, Write, Writer};
use crate::api::{
    NODE_POOL, PoolBuild, PoolSelector, PoolTaint, PoolTemplate, WindowsNodePool, WindowsNodePoolSpec,
    WindowsNodePoolStatus,
};
use crate::cluster::node::{MANAGED_BY, NodeView, OWNED_LABEL};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_pools::{
    MOST_OBSERVED, NodePools, ObservedPool, PoolName, StoredPool, observed,
};
use crate::model::nodes::node::{NodeLabel, NodeSigns as _};
use crate::model::syntax::dns::object_name;
use crate::model::syntax::text::{digest_hex, list};
use crate::model::windows::build::Build;

/// For how many days an observed pool is kept after its last node was seen.
pub const KEPT_DAYS: i64 = 90;
/// For how many days a build of a pool is remembered while the pool has nodes of another build only: long enough for a pool
/// of two builds that loses its nodes one after the other, and not for long after an upgrade.
pub const REPLACED_DAYS: i64 = 7;
/// For how long the nodes of a pool that was recorded show no other one: a kubelet writes the labels of its node.
const ONE_POOL: Duration = Duration::from_secs(60 * 60);
/// When the time in a status is renewed while nothing changes, in seconds. A pass runs once an hour at least, and each must
/// find the time of the one before due.
const RENEWED: i64 = 50 * 60;
/// The least time between two writes of one status.
const STATUS_PAUSE: Duration = Duration::from_secs(60);
/// How many pools a message names.
const NAMED: usize = 10;

/// The writes that a cluster requires.
#[derive(Default, Debug)]
pub struct PoolPlan {
    /// Pools to create, change or delete.
    pub writes: Vec<PlannedWrite<WindowsNodePool>>,
    /// Statuses to write, by the name of the pool.
    pub statuses: BTreeMap<String, Write<WindowsNodePool>>,
    /// The pools that are not recorded because there are too many, each with one of its nodes: name and uid.
    pub omitted: BTreeMap<PoolName, (String, String)>,
    /// The uids of the nodes of the pools that are created.
    pub recorded: BTreeSet<String>,
}

/// Plans the writes. `labels`: the node labels of policies. `settled`: the uids of nodes of which no other pool is recorded now.
pub fn plan(
    nodes: &BTreeMap<String, Arc<NodeView>>,
    stored: &NodePools,
    labels: &[NodeLabel],
    settled: &BTreeSet<String>,
    now: Timestamp,
) -> PoolPlan {
    let observed = observed(nodes, labels);
    let mut plan = PoolPlan::default();
    // The observed pools that no node has any more: each gives way to one that has nodes.
    let mut replaceable: Vec<&StoredPool> = Vec::new();
    for (pool, members) in stored.members(nodes) {
        let status = status_of(pool, &members, now);
        if pool.is_observed {
            let change = kept(pool, &observed, &status, now);
            if members.is_empty() && change.is_none() {
                replaceable.push(pool);
            }
            plan.writes.extend(change);
        }
        if pool.stored.status.as_ref() != Some(&status) {
            plan.statuses
                .insert(pool.name.clone(), status_write(pool, &status));
        }
    }
    // The last one gives way first: it had nodes for the shortest time.
    replaceable.sort_by_key(|pool| std::cmp::Reverse(lived(pool)));
    let mut room = stored.room();
    for (name, pool) in stored.unrecorded(nodes, &observed) {
        if pool.nodes.values().all(|uid| settled.contains(uid)) {
            continue;
        }
        if room > 0 {
            room -= 1;
        } else if let Some(replaced) = replaceable.pop() {
            plan.writes.push(deleted(replaced));
        } else {
            let node = pool.nodes.first_key_value();
            let node = node.map(|(node, uid)| (name.clone(), (node.clone(), uid.clone())));
            plan.omitted.extend(node);
            continue;
        }
        plan.writes.push(created(name, pool));
        plan.recorded.extend(pool.nodes.values().cloned());
    }
    plan
}

/// For how many seconds a pool had nodes.
fn lived(pool: &StoredPool) -> i64 {
    let created = pool.stored.metadata.creation_timestamp.as_ref();
    let status = pool.stored.status.as_ref();
    let seen = status.and_then(|status| status.last_seen_time.as_ref());
    let seconds = |time: &Time| time.0.as_second();
    seen.map_or(0, seconds) - created.map_or(0, seconds)
}

/// The name of the object of a pool: its value, readable, and a hash of label and value.
fn name_of(pool: &PoolName) -> String {
    let hash = digest_hex(format!("{}={}", pool.key, pool.value).as_bytes(), 8);
    format!("{}-{hash}", object_name(&pool.value))
}

fn template(pool: &ObservedPool) -> PoolTemplate {
    let taints = pool.taints.iter().map(|taint| PoolTaint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
    });
    PoolTemplate {
        build: Some(pool.build.to_string()),
        taints: taints.collect(),
        ..PoolTemplate::default()
    }
}

fn created(name: &PoolName, pool: &ObservedPool) -> PlannedWrite<WindowsNodePool> {
    let object = name_of(name);
    let created = WindowsNodePool {
        metadata: ObjectMeta {
            name: Some(object.clone()),
            labels: Some(
                [OWNED_LABEL, MANAGED_BY]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: WindowsNodePoolSpec {
            node_selector: PoolSelector {
                match_labels: [(name.key.clone(), name.value.clone())].into(),
            },
            template: template(pool),
        },
        status: None,
    };
    PlannedWrite {
        task: format!("create the {NODE_POOL} {object}"),
        write: Write::Create(created),
    }
}

/// The write that an observed pool needs: its template follows its nodes, and long after the last one it is deleted.
fn kept(
    pool: &StoredPool,
    observed: &BTreeMap<PoolName, ObservedPool>,
    status: &WindowsNodePoolStatus,
    now: Timestamp,
) -> Option<PlannedWrite<WindowsNodePool>> {
    let (meta, spec) = (&pool.stored.metadata, &pool.stored.spec);
    let mut selected = spec.node_selector.match_labels.iter();
    let label = selected
        .next()
        .filter(|_| spec.node_selector.match_labels.len() == 1);
    let seen = label.and_then(|(key, value)| {
        observed.get(&PoolName {
            key: key.clone(),
            value: value.clone(),
        })
    });
    if let Some(seen) = seen {
        let wanted = template(seen);
        let is_same = (&wanted.build, &wanted.taints) == (&spec.template.build, &spec.template.taints);
        return (!is_same).then(|| PlannedWrite {
            task: format!("update the {NODE_POOL} {}", pool.name),
            write: Write::Patch {
                name: pool.name.clone(),
                patch: json!({
                    "metadata": {"resourceVersion": meta.resource_version},
                    "spec": {"template": {"build": wanted.build, "taints": wanted.taints}},
                }),
            },
        });
    }
    let created = meta.creation_timestamp.as_ref();
    let last = status
        .last_seen_time
        .as_ref()
        .or(created)
        .map_or(now, |time| time.0);
    let is_forgotten = status.node_count == 0 && last < days_before(now, KEPT_DAYS);
    is_forgotten.then(|| deleted(pool))
}

fn deleted(pool: &StoredPool) -> PlannedWrite<WindowsNodePool> {
    let meta = &pool.stored.metadata;
    PlannedWrite {
        task: format!("delete the {NODE_POOL} {}", pool.name),
        write: Write::Delete {
            name: pool.name.clone(),
            uid: meta.uid.clone(),
            version: meta.resource_version.clone(),
        },
    }
}

fn days_before(now: Timestamp, days: i64) -> Timestamp {
    now.checked_sub((days * 24).hours()).unwrap_or(Timestamp::MIN)
}

/// The status of a pool: its nodes now, and what is remembered of those before.
fn status_of(pool: &StoredPool, nodes: &[&NodeView], now: Timestamp) -> WindowsNodePoolStatus {
    let before = pool.stored.status.clone().unwrap_or_default();
    let mut counts: BTreeMap<Option<Build>, i32> = BTreeMap::new();
    for node in nodes {
        *counts.entry(node.build()).or_default() += 1;
    }
    let node_count = counts.values().sum();
    let builds = builds(&before, &counts, now);
    let generation = pool.stored.metadata.generation.unwrap_or_default();
    let updates = vec![ready(pool, &counts), accepted(pool)];
    WindowsNodePoolStatus {
        observed_generation: Some(generation),
        conditions: conditions(updates, &[], &before.conditions, generation, now),
        node_count,
        builds,
        last_seen_time: seen_at(
            before.last_seen_time.as_ref(),
            (before.node_count, node_count),
            now,
        ),
    }
}

/// The builds of the nodes, and those of nodes before that are still remembered.
fn builds(
    before: &WindowsNodePoolStatus,
    counts: &BTreeMap<Option<Build>, i32>,
    now: Timestamp,
) -> Vec<PoolBuild> {
    let mut all: BTreeMap<Build, PoolBuild> = BTreeMap::new();
    for old in &before.builds {
        let Some(build) = Build::parse_label(&old.build) else {
            continue;
        };
        let gone = PoolBuild {
            node_count: 0,
            last_seen_time: seen_at(Some(&old.last_seen_time), (old.node_count, 0), now)
                .unwrap_or_else(|| old.last_seen_time.clone()),
            ..old.clone()
        };
        if counts.is_empty() || gone.last_seen_time.0 >= days_before(now, REPLACED_DAYS) {
            all.insert(build, gone);
        }
    }
    for (build, count) in counts
        .iter()
        .filter_map(|(build, count)| Some(((*build)?, *count)))
    {
        let old = before
            .builds
            .iter()
            .find(|old| Build::parse_label(&old.build) == Some(build));
        let change = (old.map_or(0, |old| old.node_count), count);
        let seen = seen_at(old.map(|old| &old.last_seen_time), change, now);
        let found = PoolBuild {
            build: build.to_string(),
            release: build.release().map(|release| release.name.to_owned()),
            node_count: count,
            last_seen_time: seen.unwrap_or(Time(now)),
        };
        all.insert(build, found);
    }
    all.into_values().collect()
}

/// When something was last seen, of which there were and are so many. A time in the future, which only another writer can have
/// set, is read as now.
fn seen_at(before: Option<&Time>, (was, is): (i32, i32), now: Timestamp) -> Option<Time> {
    // Kubernetes writes timestamps with second precision.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let before = before.map(|time| time.0.min(now));
    let is_fresh = |time: &Timestamp| now.as_second() - time.as_second() < RENEWED;
    match (was > 0, is > 0) {
        (false, false) => before.map(Time),
        (true, true) => Some(Time(before.filter(is_fresh).unwrap_or(now))),
        (true, false) | (false, true) => Some(Time(now)),
    }
}

fn accepted(pool: &StoredPool) -> ConditionUpdate {
    let unmet = (!pool.problems.is_empty()).then(|| ("Invalid", pool.problems.join("; ")));
    ConditionUpdate::expect_true("Accepted", unmet, ("Accepted", "all of the spec is used"))
}

/// Whether what the pool states of its nodes is so.
fn ready(pool: &StoredPool, counts: &BTreeMap<Option<Build>, i32>) -> ConditionUpdate {
    let found: Vec<String> = counts.keys().flatten().map(ToString::to_string).collect();
    let differs = |build: Build| !found.is_empty() && !counts.contains_key(&Some(build));
    let unmet = if pool.problems.is_empty() {
        let build = pool
            .host
            .build
            .filter(|build| !pool.is_observed && differs(*build));
        build.map(|build| {
            let message = format!(
                "spec.template.build is {build}, and the nodes of the pool run {}; correct it, so that placement and plans know \
                 what the next node will be",
                list(&found, NAMED)
            );
            ("BuildMismatched", message)
        })
    } else {
        Some(("Invalid", pool.problems.join("; ")))
    };
    let met = if counts.is_empty() {
        ("NoNodes", "the pool has no Windows nodes now")
    } else {
        ("NodesMatched", "the nodes of the pool are as the spec says")
    };
    ConditionUpdate::expect_true("Ready", unmet, met)
}

fn status_write(pool: &StoredPool, status: &WindowsNodePoolStatus) -> Write<WindowsNodePool> {
    Write::PatchStatus {
        name: pool.name.clone(),
        patch: json!({
            "metadata": {"resourceVersion": pool.stored.metadata.resource_version},
            "status": status,
        }),
    }
}

/// Writes what [`plan`] plans.
pub struct NodePoolController {
    writer: Writer,
    /// When each status was written last.
    written: BTreeMap<String, Instant>,
    /// When a pool of each node was recorded last, by the uid of the node.
    recorded: BTreeMap<String, Instant>,
}

impl NodePoolController {
    /// A controller that has written nothing yet.
    pub fn new(writer: Writer) -> Self {
        NodePoolController {
            writer,
            written: BTreeMap::new(),
            recorded: BTreeMap::new(),
        }
    }

    /// Reports the pools that are not recorded, once per hour while they are the same: that is how long the
    /// API server keeps an Event.
    async fn report(&self, omitted: &BTreeMap<PoolName, (String, String)>, result: &mut PassResult) {
        let Some((node, uid)) = omitted.values().next() else {
            return;
        };
        let names = omitted.keys().map(|pool| format!("{}={}", pool.key, pool.value));
        let note = format!(
            "there are {MOST_OBSERVED} observed {NODE_POOL} objects, and no more are created: {} are not recorded and forgotten with \
             their last node; delete those that are not needed, or declare pools",
            list(names.collect::<BTreeSet<_>>(), NAMED)
        );
        let event = NewEvent {
            is_warning: true,
            action: "ObservePools",
            reason: "NodePoolLimitReached",
            note: &note,
            regarding: of_node(node, uid),
        };
        let event = event.at(Timestamp::now());
        let created = self.writer.create_event(&event).await;
        result.record(|| "report pools that are not recorded".to_owned(), created);
    }
}

impl Controller for NodePoolController {
    const EVERY: Duration = Duration::from_secs(60 * 60);

    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        if !snapshot.is_known() {
            return PassResult::default();
        }
        let labels = snapshot.facts.stated_node_labels();
        self.recorded.retain(|_, at| at.elapsed() < ONE_POOL);
        let settled = self.recorded.keys().cloned().collect();
        let now = Timestamp::now();
        let planned = plan(&snapshot.cache.nodes, &snapshot.pools, &labels, &settled, now);
        let mut result = PassResult::with_pause(Duration::from_secs(1));
        let api: Api<WindowsNodePool> = Api::all(self.writer.client.clone());
        let mut all_written = true;
        for PlannedWrite { task, write } in planned.writes {
            let written = self.writer.write(&api, &write).await;
            all_written &= result.record(|| task, written).is_some();
        }
        if all_written {
            let recorded = planned.recorded.into_iter();
            self.recorded.extend(recorded.map(|uid| (uid, Instant::now())));
        }
        self.report(&planned.omitted, &mut result).await;
        self.written.retain(|_, at| at.elapsed() < STATUS_PAUSE);
        for (name, write) in planned.statuses {
            if let Some(at) = self.written.get(&name) {
                result.wake_at(*at + STATUS_PAUSE);
                continue;
            }
            let written = self.writer.write(&api, &write).await;
            let written = result.record(|| format!("write the status of the {NODE_POOL} {name}"), written);
            if written.is_some() {
                self.written.insert(name, Instant::now());
            }
        }
        result
    }

    fn lost(&mut self) {
        self.written.clear();
        self.recorded.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cluster::stored_node_pools::tests::{managed, node, stored};

    const WIN: &[(&str, &str)] = &[("agentpool", "win")];

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn nodes(builds: &[u32]) -> BTreeMap<String, Arc<NodeView>> {
        let of_pool = |build: &u32| node(&format!("n{build}"), *build, WIN);
        builds.iter().map(of_pool).collect()
    }

    fn spec(build: &str) -> Value {
        json!({"nodeSelector": {"matchLabels": {"agentpool": "win"}},
            "template": {"build": build, "taints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]}})
    }

    fn tasks(plan: &PoolPlan) -> Vec<&str> {
        plan.writes.iter().map(|write| write.task.as_str()).collect()
    }

    /// The status that the plan writes, if any.
    fn written(plan: &PoolPlan, name: &str) -> Option<Value> {
        plan.statuses.get(name).map(|write| match write {
            Write::PatchStatus { patch, .. } => patch["status"].clone(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_pool_is_created_from_its_nodes_and_follows_them() {
        let none = NodePools::default();
        let planned = plan(
            &nodes(&[17763, 20348]),
            &none,
            &[],
            &BTreeSet::new(),
            at("2026-01-01T00:00:00Z"),
        );
        let [
            PlannedWrite {
                write: Write::Create(pool),
                ..
            },
        ] = &planned.writes[..]
        else {
            panic!("{planned:?}");
        };
        let name = pool.metadata.name.clone().unwrap();
        assert!(name.starts_with("win-") && name.len() == 12, "{name}");
        assert_eq!(serde_json::to_value(&pool.spec).unwrap(), spec("10.0.20348"));
        let labels = pool.metadata.labels.as_ref().unwrap();
        assert_eq!(labels["transom.dev/owned"], "true");
        let pools = NodePools::of(&[stored(&name, &managed(), &spec("10.0.20348"), &Value::Null)].into());
        let later = at("2026-01-01T00:01:00Z");
        assert!(
            tasks(&plan(
                &nodes(&[17763, 20348]),
                &pools,
                &[],
                &BTreeSet::new(),
                later
            ))
            .is_empty()
        );
        let upgraded = plan(&nodes(&[26100]), &pools, &[], &BTreeSet::new(), later);
        assert_eq!(tasks(&upgraded), [format!("update the WindowsNodePool {name}")]);
        // A declared pool is never changed, and no second one is created for its label.
        let declared = NodePools::of(&[stored("mine", &json!({}), &spec("10.0.20348"), &Value::Null)].into());
        assert!(tasks(&plan(&nodes(&[26100]), &declared, &[], &BTreeSet::new(), later)).is_empty());
    }

    #[test]
    fn an_observed_pool_is_deleted_ninety_days_after_its_last_node() {
        let status = json!({"nodeCount": 0, "lastSeenTime": "2026-01-01T00:00:00Z"});
        let planned = |labels: &Value, status: &Value, now: &str| {
            let pools = NodePools::of(&[stored("p", labels, &spec("10.0.20348"), status)].into());
            let planned = plan(&nodes(&[]), &pools, &[], &BTreeSet::new(), at(now));
            tasks(&planned).join(" ")
        };
        assert_eq!(planned(&managed(), &status, "2026-03-31T00:00:00Z"), "");
        let delete = "delete the WindowsNodePool p";
        assert_eq!(planned(&managed(), &status, "2026-04-01T00:00:01Z"), delete);
        assert_eq!(
            planned(&json!({}), &status, "2027-04-01T00:00:00Z"),
            "",
            "it is declared"
        );
        // A time in the future, which only another writer can have set, is read as now; without one, the creation counts.
        let forged = json!({"nodeCount": 0, "lastSeenTime": "2999-01-01T00:00:00Z"});
        assert_eq!(planned(&managed(), &forged, "2026-04-02T00:00:00Z"), "");
        assert_eq!(planned(&managed(), &Value::Null, "2026-04-02T00:00:00Z"), delete);
    }

    #[test]
    fn a_status_counts_nodes_by_build_and_is_written_when_it_changes_and_every_hour() {
        let status = |before: &Value, builds: &[u32], now: &str| {
            let pools = NodePools::of(&[stored("p", &json!({}), &spec("10.0.20348"), before)].into());
            written(&plan(&nodes(builds), &pools, &[], &BTreeSet::new(), at(now)), "p")
        };
        let first = status(&Value::Null, &[17763, 20348], "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(first["nodeCount"], 2);
        assert_eq!(first["builds"][1]["release"], "ltsc2022");
        assert_eq!(first["conditions"][0]["reason"], "NodesMatched");
        assert_eq!(status(&first, &[17763, 20348], "2026-01-01T00:49:00Z"), None);
        let renewed = status(&first, &[17763, 20348], "2026-01-01T01:00:00Z").unwrap();
        assert_eq!(renewed["lastSeenTime"], "2026-01-01T01:00:00Z");
        // A build without nodes stays for a week while the pool has others, and as long as it has none.
        let replaced = status(&renewed, &[20348], "2026-01-01T02:00:00Z").unwrap();
        assert_eq!(replaced["builds"][0]["nodeCount"], 0);
        let later = status(&replaced, &[20348], "2026-01-09T00:00:00Z").unwrap();
        assert_eq!(later["builds"].as_array().unwrap().len(), 1);
        let empty = status(&replaced, &[], "2026-02-01T00:00:00Z").unwrap();
        assert_eq!(empty["builds"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&empty["lastSeenTime"], &empty["conditions"][0]["reason"]),
            (&json!("2026-02-01T00:00:00Z"), &json!("NoNodes"))
        );
        assert_eq!(status(&empty, &[], "2026-03-01T00:00:00Z"), None);
    }

    #[test]
    fn what_the_spec_gets_wrong_is_in_the_conditions() {
        let condition = |spec: &Value, kind: usize| {
            let pools = NodePools::of(&[stored("p", &json!({}), spec, &Value::Null)].into());
            let planned = plan(
                &nodes(&[17763]),
                &pools,
                &[],
                &BTreeSet::new(),
                at("2026-01-01T00:00:00Z"),
            );
            let condition = &written(&planned, "p").unwrap()["conditions"][kind];
            format!(
                "{} {} {}",
                condition["type"], condition["status"], condition["reason"]
            )
        };
        assert_eq!(
            condition(&spec("10.0.20348"), 0),
            r#""Ready" "False" "BuildMismatched""#
        );
        assert_eq!(
            condition(&spec("10.0.20348"), 1),
            r#""Accepted" "True" "Accepted""#
        );
        assert_eq!(condition(&spec("ltsc2022"), 0), r#""Ready" "False" "Invalid""#);
        assert_eq!(condition(&spec("ltsc2022"), 1), r#""Accepted" "False" "Invalid""#);
    }

    #[test]
    fn beyond_two_hundred_no_pool_is_created_and_the_rest_is_named() {
        let cluster: BTreeMap<_, _> = (0..203u32)
            .map(|n| node(&format!("w{n}"), 20348, &[("agentpool", &format!("p{n:03}"))]))
            .collect();
        let planned = plan(
            &cluster,
            &NodePools::default(),
            &[],
            &BTreeSet::new(),
            at("2026-01-01T00:00:00Z"),
        );
        assert_eq!((planned.writes.len(), planned.omitted.len()), (MOST_OBSERVED, 3));
        let names: BTreeSet<_> = planned.writes.iter().map(|write| &write.task).collect();
        assert_eq!(names.len(), MOST_OBSERVED);
        assert!(
            planned
                .omitted
                .values()
                .any(|(node, uid)| (&**node, &**uid) == ("w200", "uid-w200"))
        );
    }

    #[test]
    fn of_the_nodes_of_a_pool_that_was_recorded_no_other_one_is() {
        let now = at("2026-01-01T00:00:00Z");
        let pool = |value: &str, names: &[&str]| -> BTreeMap<_, _> {
            names
                .iter()
                .map(|name| node(name, 20348, &[("agentpool", value)]))
                .collect()
        };
        let none = NodePools::default();
        let first = plan(&pool("one", &["a"]), &none, &[], &BTreeSet::new(), now);
        assert_eq!(
            (first.writes.len(), &first.recorded),
            (1, &["uid-a".to_owned()].into())
        );
        let flipped = plan(&pool("two", &["a"]), &none, &[], &first.recorded, now);
        assert_eq!((flipped.writes.len(), flipped.omitted.len()), (0, 0));
        let joined = plan(&pool("two", &["a", "b"]), &none, &[], &first.recorded, now);
        assert_eq!(joined.writes.len(), 1, "another node shows it too");
    }

    #[test]
    fn a_pool_with_nodes_takes_the_place_of_one_that_no_node_has_any_more() {
        let status = |last: &str| json!({"nodeCount": 0, "lastSeenTime": last});
        let selecting = |value: &str| json!({"nodeSelector": {"matchLabels": {"agentpool": value}}});
        // Each was created at the beginning of the year; one of them had nodes for a second only.
        let stored: BTreeMap<_, _> = (0..MOST_OBSERVED)
            .map(|at| {
                let last = if at == 117 {
                    "2026-01-01T00:00:01Z"
                } else {
                    "2026-02-01T00:00:00Z"
                };
                stored(
                    &format!("p{at}"),
                    &managed(),
                    &selecting(&format!("p{at}")),
                    &status(last),
                )
            })
            .collect();
        let pools = NodePools::of(&stored);
        let cluster = [node("w", 20348, &[("agentpool", "new")])].into();
        let planned = plan(
            &cluster,
            &pools,
            &[],
            &BTreeSet::new(),
            at("2026-02-02T00:00:00Z"),
        );
        let tasks = tasks(&planned);
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        assert_eq!(tasks[0], "delete the WindowsNodePool p117");
        assert!(
            tasks[1].starts_with("create the WindowsNodePool new-"),
            "{tasks:?}"
        );
        // One that is deleted for its age does not also give way.
        let later = at("2026-05-15T00:00:00Z");
        let planned = plan(&cluster, &pools, &[], &BTreeSet::new(), later);
        let deleted = planned
            .writes
            .iter()
            .filter(|write| write.task.starts_with("delete"));
        assert_eq!(deleted.count(), MOST_OBSERVED);
        // A pool with nodes gives way to none.
        let with_nodes: BTreeMap<_, _> = (0..=MOST_OBSERVED)
            .map(|at| node(&format!("w{at}"), 20348, &[("agentpool", &format!("p{at}"))]))
            .collect();
        let planned = plan(
            &with_nodes,
            &pools,
            &[],
            &BTreeSet::new(),
            at("2026-02-02T00:00:00Z"),
        );
        assert_eq!(planned.omitted.len(), 1);
    }

    #[test]
    fn names_of_objects_are_valid_and_differ_by_label() {
        let name = |key: &str, value: &str| {
            name_of(&PoolName {
                key: key.to_owned(),
                value: value.to_owned(),
            })
        };
        assert_ne!(name("agentpool", "win"), name("karpenter.sh/nodepool", "win"));
        assert_ne!(name("agentpool", "Win"), name("agentpool", "win"));
        let odd = name("agentpool", "Win_22.A");
        assert!(odd.starts_with("win-22-a-"), "{odd}");
    }
}
