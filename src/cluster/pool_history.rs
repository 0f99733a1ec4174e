//! The Windows node pools that have been seen, so that a pool with zero nodes is still considered; pure.
//!
//! Only pools with a label are remembered: a platform's, or one of the `poolLabels` of a WindowsNodePolicy. An autoscaler
//! creates a pool's nodes with that label; other labels of a node that is gone say nothing about nodes to come. A ConfigMap in
//! Transom's namespace has one key for each pool, which a person can read and delete. A date in the future, which only another
//! writer can have set, is read as today.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::cache::PoolHistoryObject;
use super::node::NodeView;
use crate::model::build::Build;
use crate::model::facts::Facts;
use crate::model::node::{Host, NodeSigns as _, PoolLabel, Taint, pool_of};
use crate::model::node_affinity::{Match, matches_label};

/// The ConfigMap in Transom's namespace with the history.
pub const NODE_POOLS_CONFIG_MAP: &str = "transom-node-pools";
/// For how many days a pool is remembered after its last node was seen.
pub const KEPT_DAYS: i64 = 90;
/// For how many days a build of a pool is remembered while the pool has nodes of another build only: long enough for a pool
/// of two builds that loses its nodes one after the other, and not for long after an upgrade.
pub const REPLACED_DAYS: i64 = 7;
/// The maximum number of pools; those seen last are kept.
const MOST: usize = 200;
/// The longest key of a ConfigMap.
const LONGEST_KEY: usize = 253;

/// A pool label with its value.
type PoolName = (String, String);

/// What the nodes of one build in a pool have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RememberedBuild {
    /// The taints that indicate Windows, sorted. Others are not useful for placement, and change often.
    taints: Vec<Taint>,
    last_seen: Date,
}

/// The pools that have been seen, each with its builds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolHistory(BTreeMap<PoolName, BTreeMap<Build, RememberedBuild>>);

/// A pool in the ConfigMap. The first field is the label: an admission policy accepts only such values.
#[derive(Serialize, Deserialize)]
struct PoolEntry {
    label: String,
    builds: Vec<BuildEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildEntry {
    build: String,
    #[serde(default)]
    taints: Vec<Taint>,
    last_seen: Date,
}

/// The pool of a node: by the label of its platform, or by one that a policy names.
fn name_of(node: &NodeView, labels: &[PoolLabel]) -> Option<PoolName> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let of_policy = || {
        let mut all = node.labels.iter();
        let named = all.find(|(key, value)| labels.iter().any(|label| label.matches(key, value)));
        named.map(|(key, value)| (key.as_str(), value.as_str()))
    };
    pool_of(|key| node.label(key)).or_else(of_policy).map(owned)
}

impl PoolHistory {
    /// Reads the stored history. An entry that cannot be read is ignored, and is removed by the next write.
    pub fn of(stored: &BTreeMap<String, Arc<PoolHistoryObject>>) -> PoolHistory {
        let stored = stored.get(NODE_POOLS_CONFIG_MAP);
        let entries = stored.iter().flat_map(|stored| stored.pools.values());
        let mut pools = BTreeMap::new();
        for entry in entries.filter_map(|text| serde_json::from_str::<PoolEntry>(text).ok()) {
            let Some((key, value)) = entry.label.split_once('=') else {
                continue;
            };
            let builds = entry.builds.into_iter().filter_map(|of| {
                let remembered = RememberedBuild {
                    taints: of.taints,
                    last_seen: of.last_seen,
                };
                Some((Build::parse_label(&of.build)?, remembered))
            });
            pools.insert((key.to_owned(), value.to_owned()), builds.collect());
        }
        PoolHistory(pools)
    }

    /// The data of the ConfigMap: one key for each pool, such as `kubernetes.azure.com_agentpool.win22`.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let entry = |((key, value), builds): (&PoolName, &BTreeMap<Build, RememberedBuild>)| {
            let builds = builds.iter().map(|(build, of)| BuildEntry {
                build: build.to_string(),
                taints: of.taints.clone(),
                last_seen: of.last_seen,
            });
            let entry = PoolEntry {
                label: format!("{key}={value}"),
                builds: builds.collect(),
            };
            // Cannot fail: strings and dates under string keys.
            let text = serde_json::to_string(&entry).unwrap_or_default();
            (data_key(key, value), text)
        };
        self.0.iter().map(entry).collect()
    }

    /// What the nodes show now.
    fn present(nodes: &BTreeMap<String, Arc<NodeView>>, labels: &[PoolLabel], today: Date) -> PoolHistory {
        let mut pools: BTreeMap<PoolName, BTreeMap<Build, RememberedBuild>> = BTreeMap::new();
        for node in nodes.values().filter(|node| node.is_windows()) {
            let (Some(name), Some(build)) = (name_of(node, labels), node.build()) else {
                continue;
            };
            if data_key(&name.0, &name.1).len() > LONGEST_KEY {
                continue;
            }
            let mut taints = node.taints();
            taints.retain(Taint::marks_windows);
            taints.sort();
            let seen = RememberedBuild {
                taints,
                last_seen: today,
            };
            let builds = pools.entry(name).or_default();
            let known = builds.entry(build).or_insert_with(|| seen.clone());
            known.taints.retain(|taint| seen.taints.contains(taint));
        }
        PoolHistory(pools)
    }

    /// The history after these nodes were seen on a date: adds their pools, and drops expired ones. `labels`: the pool labels
    /// of policies.
    #[must_use]
    pub fn after(
        &self,
        nodes: &BTreeMap<String, Arc<NodeView>>,
        labels: &[PoolLabel],
        today: Date,
    ) -> PoolHistory {
        let present = PoolHistory::present(nodes, labels, today);
        let mut pools = self.0.clone();
        for (name, builds) in &mut pools {
            let days = if present.0.contains_key(name) {
                REPLACED_DAYS
            } else {
                KEPT_DAYS
            };
            let oldest = today.checked_sub(days.days()).unwrap_or(Date::MIN);
            for build in builds.values_mut() {
                build.last_seen = build.last_seen.min(today);
            }
            builds.retain(|_, build| build.last_seen >= oldest);
        }
        for (name, builds) in present.0 {
            pools.entry(name).or_default().extend(builds);
        }
        pools.retain(|_, builds| !builds.is_empty());
        if pools.len() > MOST {
            let mut by_day: Vec<_> = pools.into_iter().collect();
            // Most recent first; within a date in a fixed order, so that every replica keeps the same ones.
            let seen =
                |builds: &BTreeMap<Build, RememberedBuild>| builds.values().map(|of| of.last_seen).max();
            by_day.sort_by(|(a, of_a), (b, of_b)| seen(of_b).cmp(&seen(of_a)).then_with(|| a.cmp(b)));
            by_day.truncate(MOST);
            pools = by_day.into_iter().collect();
        }
        PoolHistory(pools)
    }

    /// The builds of pools without a node of that build now, as hosts.
    pub fn absent(&self, nodes: &BTreeMap<String, Arc<NodeView>>, labels: &[PoolLabel]) -> Vec<Host> {
        let present = PoolHistory::present(nodes, labels, Date::MIN);
        let mut hosts = Vec::new();
        for ((key, value), builds) in &self.0 {
            let now = present.0.get(&(key.clone(), value.clone()));
            let state = if now.is_some() {
                "no node of this build"
            } else {
                "at zero nodes"
            };
            let absent = builds
                .iter()
                .filter(|(build, _)| !now.is_some_and(|now| now.contains_key(*build)));
            hosts.extend(absent.map(|(build, of)| Host {
                name: format!("of the pool {key}={value} ({state})"),
                build: Some(*build),
                taints: of.taints.clone(),
                labels: [(key.clone(), value.clone())].into(),
                may_be_at_zero: true,
                ..Host::default()
            }));
        }
        hosts
    }
}

/// The key of a pool in the ConfigMap, whose keys cannot contain a slash.
fn data_key(label: &str, value: &str) -> String {
    format!("{}.{value}", label.replace('/', "_"))
}

/// The Windows nodes that an autoscaler may remove and whose pool nothing names: no label of a platform or policy, and no
/// declared pool. Once they are gone, nothing is known of them.
pub fn undeclared(nodes: &BTreeMap<String, Arc<NodeView>>, facts: &Facts) -> BTreeSet<String> {
    let labels = facts.policy_pool_labels();
    let is_declared = |node: &NodeView| {
        facts.pools.iter().any(|pool| {
            let has_label = |(key, value)| matches_label(key, value, node) == Match::Yes;
            let same_build = || pool.build.is_some() && pool.build == node.build();
            pool.labels.iter().all(has_label) && (!pool.labels.is_empty() || same_build())
        })
    };
    let windows = nodes
        .values()
        .filter(|node| node.is_windows() && node.may_be_autoscaled);
    windows
        .filter(|node| name_of(node, &labels).is_none() && !is_declared(node))
        .map(|node| node.name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use k8s_openapi::api::core::v1::Taint as NodeTaint;

    use super::*;

    fn node(name: &str, build: u32, labels: &[(&str, &str)]) -> (String, Arc<NodeView>) {
        let taint = |key: &str, value: &str| NodeTaint {
            key: key.into(),
            value: Some(value.into()),
            effect: "NoSchedule".into(),
            ..NodeTaint::default()
        };
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let view = NodeView {
            name: name.to_owned(),
            operating_system: "windows".into(),
            kernel_version: format!("10.0.{build}.1"),
            labels: Arc::new(labels.collect()),
            taints: vec![taint("os", "Windows"), taint("maintenance", "now")],
            ..NodeView::default()
        };
        (name.to_owned(), Arc::new(view))
    }

    fn nodes(builds: &[u32]) -> BTreeMap<String, Arc<NodeView>> {
        let of_pool = |build: &u32| node(&format!("n{build}"), *build, &[("agentpool", "win")]);
        builds.iter().map(of_pool).collect()
    }

    fn stored(data: BTreeMap<String, String>) -> BTreeMap<String, Arc<PoolHistoryObject>> {
        let object = PoolHistoryObject {
            pools: data,
            ..PoolHistoryObject::default()
        };
        [(NODE_POOLS_CONFIG_MAP.to_owned(), Arc::new(object))].into()
    }

    fn builds(hosts: &[Host]) -> Vec<u32> {
        hosts
            .iter()
            .filter_map(|host| Some(host.build?.number()))
            .collect()
    }

    const DAY: Date = date(2026, 1, 1);

    #[test]
    fn a_pool_counts_for_ninety_days_after_its_last_node_is_gone() {
        let seen = PoolHistory::default().after(&nodes(&[20348]), &[], DAY);
        assert!(
            seen.absent(&nodes(&[20348]), &[]).is_empty(),
            "the pool has a node"
        );
        let none = nodes(&[]);
        let [pool] = seen.absent(&none, &[]).try_into().unwrap();
        assert_eq!(pool.build, Some(Build::new(20348)));
        assert_eq!(
            pool.taints,
            [Taint::no_schedule("os", "Windows")],
            "a maintenance taint is not remembered"
        );
        assert_eq!(pool.labels.get("agentpool"), Some("win"));
        assert_eq!(seen.after(&none, &[], date(2026, 4, 1)), seen);
        assert_eq!(seen.after(&none, &[], date(2026, 4, 2)), PoolHistory::default());
    }

    #[test]
    fn only_a_node_with_a_pool_label_is_remembered() {
        let ring = PoolLabel::exact("ring", "stable");
        let bare = [node(
            "a",
            20348,
            &[("ring", "stable"), ("topology.kubernetes.io/zone", "a")],
        )];
        let bare: BTreeMap<_, _> = bare.into_iter().collect();
        assert_eq!(
            PoolHistory::default().after(&bare, &[], DAY),
            PoolHistory::default()
        );
        let seen = PoolHistory::default().after(&bare, &[ring], DAY);
        let [pool] = seen.absent(&nodes(&[]), &[]).try_into().unwrap();
        assert_eq!(pool.labels.iter().collect::<Vec<_>>(), [("ring", "stable")]);
    }

    #[test]
    fn a_pool_of_two_builds_remembers_both_whichever_node_leaves_first() {
        let both = PoolHistory::default().after(&nodes(&[17763, 20348]), &[], DAY);
        let one_left = both.after(&nodes(&[20348]), &[], date(2026, 1, 2));
        assert_eq!(builds(&one_left.absent(&nodes(&[20348]), &[])), [17763]);
        let none_left = one_left.after(&nodes(&[]), &[], date(2026, 1, 3));
        assert_eq!(builds(&none_left.absent(&nodes(&[]), &[])), [17763, 20348]);
        // A pool that was upgraded keeps its old build for a week.
        let upgraded = both.after(&nodes(&[20348]), &[], date(2026, 1, 9));
        assert_eq!(builds(&upgraded.absent(&nodes(&[]), &[])), [20348]);
    }

    #[test]
    fn a_day_in_the_future_keeps_no_pool_for_longer() {
        let forged = PoolHistory::default().after(&nodes(&[20348]), &[], Date::MAX);
        let none = nodes(&[]);
        let read = forged.after(&none, &[], DAY);
        assert_eq!(read, PoolHistory::default().after(&nodes(&[20348]), &[], DAY));
        assert_eq!(read.after(&none, &[], date(2026, 4, 2)), PoolHistory::default());
    }

    #[test]
    fn the_config_map_has_a_key_for_each_pool_and_what_is_deleted_there_is_forgotten() {
        let azure = node("a", 20348, &[("kubernetes.azure.com/agentpool", "win22")]);
        let mut both = nodes(&[17763]);
        both.extend([azure]);
        let seen = PoolHistory::default().after(&both, &[], DAY);
        let mut data = seen.to_data();
        assert_eq!(
            data["kubernetes.azure.com_agentpool.win22"],
            r#"{"label":"kubernetes.azure.com/agentpool=win22","builds":[{"build":"10.0.20348","taints":[{"key":"os","value":"Windows","effect":"NoSchedule"}],"lastSeen":"2026-01-01"}]}"#
        );
        assert_eq!(PoolHistory::of(&stored(data.clone())), seen);
        data.remove("agentpool.win").unwrap();
        data.extend([("other".to_owned(), "rubbish".to_owned())]);
        let read = PoolHistory::of(&stored(data)).after(&nodes(&[]), &[], DAY);
        assert_eq!(builds(&read.absent(&nodes(&[]), &[])), [20348]);
        assert_eq!(read.to_data().len(), 1);
    }

    #[test]
    fn an_autoscaled_node_whose_pool_nothing_names_is_named() {
        let facts = |declared: Option<Host>, label: Option<PoolLabel>| {
            let mut facts = Facts::new(36, DAY);
            facts.pools.extend(declared);
            facts.pool_labels.extend(label);
            facts
        };
        let of = |autoscaled: bool, labels: &[(&str, &str)]| -> BTreeMap<String, Arc<NodeView>> {
            let (name, mut node) = node("w", 20348, labels);
            Arc::make_mut(&mut node).may_be_autoscaled = autoscaled;
            [(name, node)].into()
        };
        let pool = |build: u32, labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(Host {
                build: Some(Build::new(build)),
                labels: labels.collect(),
                ..Host::default()
            })
        };
        let ring = [("ring", "stable")];
        for (nodes, facts, is_named) in [
            (of(true, &ring), facts(None, None), true),
            (of(false, &ring), facts(None, None), false),
            (of(true, &[("agentpool", "win")]), facts(None, None), false),
            (
                of(true, &ring),
                facts(None, Some(PoolLabel::prefix("ring", "st"))),
                false,
            ),
            (of(true, &ring), facts(pool(20348, &[]), None), false),
            (of(true, &ring), facts(pool(17763, &[]), None), true),
            (of(true, &ring), facts(pool(20348, &ring), None), false),
            (
                of(true, &ring),
                facts(pool(20348, &[("ring", "canary")]), None),
                true,
            ),
        ] {
            assert_eq!(!undeclared(&nodes, &facts).is_empty(), is_named, "{nodes:?}");
        }
    }

    #[test]
    fn a_cluster_that_makes_pools_without_end_is_remembered_in_part() {
        let pool = |n: u32| node("a", 20348, &[("agentpool", &n.to_string())]);
        let mut memory = PoolHistory::default();
        for n in 0..300u32 {
            let day = DAY.checked_add(i64::from(n / 10).days()).unwrap();
            memory = memory.after(&[pool(n)].into(), &[], day);
        }
        assert_eq!(memory.0.len(), MOST);
        let at_once = (0..300).map(|n| (n.to_string(), pool(n).1)).collect();
        assert_eq!(PoolHistory::default().after(&at_once, &[], DAY).0.len(), MOST);
        assert!(memory.0.contains_key(&("agentpool".to_owned(), "299".to_owned())));
    }
}
