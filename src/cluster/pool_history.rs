//! The Windows node pools that have been seen, so that a pool with zero nodes is still considered; pure.
//!
//! The history is stored in a ConfigMap in Transom's namespace, for 90 days after the last node of a pool was seen. A
//! date in the future, which only another writer can have set, is read as today.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::cache::PoolHistoryObject;
use super::node::NodeView;
use crate::model::build::Build;
use crate::model::node::{Host, NodeSigns as _, Taint, pool_of};

/// The ConfigMap in Transom's namespace with the history.
pub const NODE_POOLS_CONFIG_MAP: &str = "transom-node-pools";
/// The key of its data.
pub const SEEN_KEY: &str = "pools.json";
/// For how many days a pool is remembered after its last node was seen.
pub const KEPT_DAYS: i64 = 90;
/// The maximum number of pools; those seen last are kept.
const MOST: usize = 200;

/// A pool: what its nodes have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct RememberedPool {
    /// The value of the build label.
    build: Option<String>,
    /// The taints that indicate Windows, sorted. Others are not useful for placement, and change often.
    #[serde(default)]
    taints: Vec<Taint>,
    /// The label of the pool, if the platform has one: an autoscaler knows it before there is a node.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl RememberedPool {
    fn of(node: &NodeView) -> Option<RememberedPool> {
        if !node.is_windows() {
            return None;
        }
        let mut taints = node.taints();
        taints.retain(Taint::marks_windows);
        taints.sort();
        let label = pool_of(|key| node.label(key)).map(|(key, name)| (key.to_owned(), name.to_owned()));
        Some(RememberedPool {
            build: node.build().map(|build| build.to_string()),
            taints,
            labels: label.into_iter().collect(),
        })
    }

    fn host(&self) -> Host {
        let of_label = self
            .labels
            .iter()
            .next()
            .map(|(key, value)| format!(" {key}={value}"));
        Host {
            name: format!("of the pool{} (at zero nodes)", of_label.unwrap_or_default()),
            build: self.build.as_deref().and_then(Build::parse_label),
            taints: self.taints.clone(),
            labels: self.labels.clone().into(),
            may_be_at_zero: true,
            ..Host::default()
        }
    }
}

/// The pools that have been seen, each with the date when it was last seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolHistory(BTreeMap<RememberedPool, Date>);

#[derive(Serialize, Deserialize)]
struct PoolEntry {
    #[serde(flatten)]
    pool: RememberedPool,
    #[serde(rename = "lastSeen")]
    last_seen: Date,
}

impl PoolHistory {
    /// Reads the stored history; empty if it cannot be read, because it is then written again.
    pub fn of(stored: &BTreeMap<String, Arc<PoolHistoryObject>>) -> PoolHistory {
        let stored = stored
            .get(NODE_POOLS_CONFIG_MAP)
            .map(|seen| PoolHistory::from_json(&seen.pools));
        stored.and_then(Result::ok).unwrap_or_default()
    }

    /// Reads what [`PoolHistory::to_json`] wrote.
    ///
    /// # Errors
    /// If the text has another format.
    pub fn from_json(text: &str) -> Result<PoolHistory, serde_json::Error> {
        let entries: Vec<PoolEntry> = serde_json::from_str(text)?;
        Ok(PoolHistory(
            entries
                .into_iter()
                .map(|entry| (entry.pool, entry.last_seen))
                .collect(),
        ))
    }

    /// A JSON list with one entry per pool, in a stable order.
    pub fn to_json(&self) -> String {
        let entries = self.0.iter().map(|(pool, last_seen)| PoolEntry {
            pool: pool.clone(),
            last_seen: *last_seen,
        });
        // Cannot fail: strings and dates under string keys.
        serde_json::to_string_pretty(&entries.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// The history after these nodes were seen on a date: adds their pools, and drops expired ones.
    #[must_use]
    pub fn after(&self, nodes: &BTreeMap<String, Arc<NodeView>>, today: Date) -> PoolHistory {
        let present: BTreeSet<RememberedPool> = nodes
            .values()
            .filter_map(|node| RememberedPool::of(node))
            .collect();
        let mut pools = self.0.clone();
        // If a named pool has new properties, the entry with its old ones is dropped.
        let labels = present.iter().map(|pool| &pool.labels);
        let named: BTreeSet<_> = labels.filter(|labels| !labels.is_empty()).collect();
        pools.retain(|pool, _| !named.contains(&pool.labels));
        pools.extend(present.iter().map(|pool| (pool.clone(), today)));
        for last_seen in pools.values_mut() {
            *last_seen = (*last_seen).min(today);
        }
        let oldest = today.checked_sub(KEPT_DAYS.days()).unwrap_or(Date::MIN);
        pools.retain(|_, last_seen| *last_seen >= oldest);
        if pools.len() > MOST {
            let mut by_day: Vec<(RememberedPool, Date)> = pools.into_iter().collect();
            // Most recent first; within a date in a fixed order, so that every replica keeps the same ones.
            by_day.sort_by(|(a, seen_a), (b, seen_b)| seen_b.cmp(seen_a).then_with(|| a.cmp(b)));
            by_day.truncate(MOST);
            return PoolHistory(by_day.into_iter().collect());
        }
        PoolHistory(pools)
    }

    /// The pools without a node now, as hosts.
    pub fn absent(&self, nodes: &BTreeMap<String, Arc<NodeView>>) -> Vec<Host> {
        let present: BTreeSet<RememberedPool> = nodes
            .values()
            .filter_map(|node| RememberedPool::of(node))
            .collect();
        let is_present = |pool: &RememberedPool| {
            let same_name = |other: &RememberedPool| !pool.labels.is_empty() && other.labels == pool.labels;
            present.contains(pool) || present.iter().any(same_name)
        };
        self.0
            .keys()
            .filter(|pool| !is_present(pool))
            .map(RememberedPool::host)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use k8s_openapi::api::core::v1::Taint as NodeTaint;

    use super::*;

    fn nodes(names: &[&str]) -> BTreeMap<String, Arc<NodeView>> {
        let node = |name: &&str| {
            let taint = |key: &str, value: &str| NodeTaint {
                key: key.into(),
                value: Some(value.into()),
                effect: "NoSchedule".into(),
                ..NodeTaint::default()
            };
            let view = NodeView {
                name: (*name).to_owned(),
                operating_system: "windows".into(),
                kernel_version: "10.0.20348.1".into(),
                labels: Arc::new([("agentpool".to_owned(), "win".to_owned())].into()),
                taints: vec![taint("os", "Windows"), taint("maintenance", "now")],
                ..NodeView::default()
            };
            ((*name).to_owned(), Arc::new(view))
        };
        names.iter().map(node).collect()
    }

    #[test]
    fn a_pool_counts_for_ninety_days_after_its_last_node_is_gone() {
        let seen = PoolHistory::default().after(&nodes(&["a", "b"]), date(2026, 1, 1));
        assert!(seen.absent(&nodes(&["c"])).is_empty(), "the pool has a node");
        let none = nodes(&[]);
        let [pool] = seen.absent(&none).try_into().unwrap();
        assert_eq!(pool.build, Some(Build::new(20348)));
        assert_eq!(
            pool.taints,
            [Taint::no_schedule("os", "Windows")],
            "a maintenance taint is not remembered"
        );
        assert_eq!(pool.labels.get("agentpool"), Some("win"));
        assert_eq!(seen.after(&none, date(2026, 4, 1)), seen);
        assert_eq!(seen.after(&none, date(2026, 4, 2)), PoolHistory::default());
    }

    #[test]
    fn a_day_in_the_future_keeps_no_pool_for_longer() {
        let today = date(2026, 1, 1);
        let forged = PoolHistory::default().after(&nodes(&["a"]), Date::MAX);
        let none = nodes(&[]);
        let read = forged.after(&none, today);
        assert_eq!(read, PoolHistory::default().after(&nodes(&["a"]), today));
        assert_eq!(read.after(&none, date(2026, 4, 2)), PoolHistory::default());
        assert!(read.to_json().contains("2026-01-01"), "{}", read.to_json());
    }

    #[test]
    fn a_pool_that_was_rebuilt_is_remembered_as_it_is_now() {
        let seen = PoolHistory::default().after(&nodes(&["a"]), date(2026, 1, 1));
        let mut upgraded = nodes(&["b"]);
        Arc::make_mut(upgraded.get_mut("b").unwrap()).kernel_version = "10.0.26100.1".into();
        assert!(seen.absent(&upgraded).is_empty());
        let [pool] = seen
            .after(&upgraded, date(2026, 1, 2))
            .absent(&nodes(&[]))
            .try_into()
            .unwrap();
        assert_eq!(pool.build, Some(Build::new(26100)));
    }

    #[test]
    fn it_is_read_as_it_was_written_and_rubbish_is_refused() {
        let seen = PoolHistory::default().after(&nodes(&["a"]), date(2026, 1, 1));
        assert_eq!(PoolHistory::from_json(&seen.to_json()).unwrap(), seen);
        assert!(PoolHistory::from_json("rubbish").is_err());
        assert!(PoolHistory::from_json(r#"[{"build": 3}]"#).is_err());
    }

    #[test]
    fn a_cluster_that_makes_pools_without_end_is_remembered_in_part() {
        let mut memory = PoolHistory::default();
        for n in 0..300u32 {
            let mut pool = nodes(&["a"]);
            let node = Arc::make_mut(pool.get_mut("a").unwrap());
            Arc::make_mut(&mut node.labels).insert("agentpool".into(), n.to_string());
            memory = memory.after(
                &pool,
                date(2026, 1, 1).checked_add(i64::from(n / 10).days()).unwrap(),
            );
        }
        assert_eq!(memory.0.len(), MOST);
        let mut at_once = BTreeMap::new();
        for n in 0..300 {
            let mut pool = nodes(&["a"]);
            let node = Arc::make_mut(pool.get_mut("a").unwrap());
            Arc::make_mut(&mut node.labels).insert("agentpool".into(), n.to_string());
            at_once.extend(pool.into_values().map(|node| (n.to_string(), node)));
        }
        assert_eq!(
            PoolHistory::default().after(&at_once, date(2026, 1, 1)).0.len(),
            MOST
        );
        assert!(memory.0.keys().any(|pool| pool.labels["agentpool"] == "299"));
    }
}
