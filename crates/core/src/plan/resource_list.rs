//! The resources that pods request and nodes provide.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::nodes::extended_resources::is_extended;
use crate::model::objects::pod::PodSpec;
use crate::model::syntax::json_types::{Map, Quantity};

/// CPU, memory, number of pods, and extended resources.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Number of pods.
    pub pods: u64,
    /// Extended resources, such as `microsoft.com/directx`; absent if there is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<String, u64>,
}

impl ResourceList {
    /// Reads a map of resources; missing or invalid entries are zero.
    pub(super) fn of(resources: &Map<'_, Quantity<'_>>) -> Self {
        let names = resources.iter().map(|(name, _)| &**name);
        ResourceList::each_of(names, |name| {
            resources.get(name).and_then(Quantity::millis).unwrap_or_default()
        })
    }

    /// Reads what a node offers; `None` if it does not report its CPU, its memory or its number of pods.
    pub fn of_node(allocatable: &Map<'_, Quantity<'_>>) -> Option<Self> {
        let all = ResourceList::of(allocatable);
        (all.cpu_millis > 0 && all.memory_bytes > 0 && all.pods > 0).then_some(all)
    }

    /// The requests that the scheduler computes for a pod, plus the overhead of its RuntimeClass.
    pub fn of_pod(pod: &PodSpec<'_>, overhead_of: impl Fn(&str) -> Option<ResourceList>) -> Self {
        let mut all = ResourceList::each_of(pod.named_resources(), |name| pod.requested_millis(name));
        if pod.overhead.is_empty() {
            let of_class = pod.runtime_class_name.as_deref().and_then(overhead_of);
            all += &of_class.unwrap_or_default();
        } else {
            all += &ResourceList::of(&pod.overhead);
        }
        all.pods = 1;
        all
    }

    /// Every resource from its amount in thousandths. `names`: where extended resources occur.
    fn each_of<'n>(names: impl Iterator<Item = &'n str>, millis: impl Fn(&str) -> u128) -> Self {
        let whole = |name: &str| clamp(millis(name).div_ceil(1000));
        let extended = names.filter(|name| is_extended(name));
        ResourceList {
            cpu_millis: clamp(millis("cpu")),
            memory_bytes: whole("memory"),
            pods: whole("pods"),
            extended: extended.map(|name| (name.to_owned(), whole(name))).collect(),
        }
    }

    #[must_use]
    pub(super) fn times(&self, count: u64) -> Self {
        ResourceList {
            cpu_millis: self.cpu_millis.saturating_mul(count),
            memory_bytes: self.memory_bytes.saturating_mul(count),
            pods: self.pods.saturating_mul(count),
            extended: (self.extended.iter())
                .map(|(name, amount)| (name.clone(), amount.saturating_mul(count)))
                .collect(),
        }
    }

    /// Subtracts; results below zero become zero.
    #[must_use]
    pub fn without(mut self, other: &ResourceList) -> Self {
        self.each(other, u64::saturating_sub);
        self
    }

    /// How many of these are needed to hold `other`; `None` if no number is enough.
    pub fn to_hold(&self, other: &ResourceList) -> Option<u64> {
        let count = |room: u64, needed: u64| match (room, needed) {
            (_, 0) => Some(0),
            (0, _) => None,
            (room, needed) => Some(needed.div_ceil(room)),
        };
        let cpu = count(self.cpu_millis, other.cpu_millis)?;
        let memory = count(self.memory_bytes, other.memory_bytes)?;
        let mut most = cpu.max(memory).max(count(self.pods, other.pods)?);
        for (name, needed) in &other.extended {
            let room = self.extended.get(name).copied().unwrap_or_default();
            most = most.max(count(room, *needed)?);
        }
        Some(most)
    }

    fn each(&mut self, other: &ResourceList, with: fn(u64, u64) -> u64) {
        self.cpu_millis = with(self.cpu_millis, other.cpu_millis);
        self.memory_bytes = with(self.memory_bytes, other.memory_bytes);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.extended {
            let own = self.extended.entry(name.clone()).or_default();
            *own = with(*own, *amount);
        }
        self.extended.retain(|_, amount| *amount > 0);
    }
}

impl AddAssign<&ResourceList> for ResourceList {
    fn add_assign(&mut self, other: &ResourceList) {
        self.each(other, u64::saturating_add);
    }
}

fn clamp(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_asks_for_what_the_scheduler_counts() {
        let requests = |spec: &str| {
            let pod: PodSpec<'_> = serde_json::from_str(spec).unwrap();
            let amount = ResourceList::of_pod(&pod, |class| {
                (class == "isolated").then(|| ResourceList {
                    cpu_millis: 7,
                    memory_bytes: 7,
                    ..ResourceList::default()
                })
            });
            (amount.cpu_millis, amount.memory_bytes, amount.pods)
        };
        let of = |cpu: &str, memory: &str| {
            format!(r#"{{"resources": {{"requests": {{"cpu": "{cpu}", "memory": "{memory}"}}}}}}"#)
        };
        let (small, large) = (of("250m", "1Ki"), of("1", "1"));
        assert_eq!(requests("{}"), (0, 0, 1));
        assert_eq!(
            requests(&format!(r#"{{"containers": [{small}, {small}]}}"#)),
            (500, 2048, 1)
        );
        assert_eq!(
            requests(&format!(
                r#"{{"containers": [{small}], "initContainers": [{large}, {small}]}}"#
            )),
            (1000, 1024, 1)
        );
        let sidecar = large.replacen('{', r#"{"restartPolicy": "Always", "#, 1);
        assert_eq!(
            requests(&format!(
                r#"{{"containers": [{small}], "initContainers": [{sidecar}, {small}]}}"#
            )),
            (1250, 1025, 1)
        );
        assert_eq!(
            requests(
                r#"{"containers": [{"resources": {"limits": {"cpu": 2, "memory": "3"}, "requests": {"memory": "1"}}}]}"#
            ),
            (2000, 1, 1),
            "a limit is the request where none is written"
        );
        assert_eq!(requests(r#"{"runtimeClassName": "isolated"}"#), (7, 7, 1));
        for (of_pod, expected) in [
            (r#"{"requests": {"cpu": 6}}"#, (6000, 1024, 1)),
            (r#"{"limits": {"cpu": 6, "memory": "4Ki"}}"#, (250, 1024, 1)),
            (
                r#"{"requests": {"cpu": "1m"}, "limits": {"cpu": 2}}"#,
                (1, 1024, 1),
            ),
        ] {
            let pod = format!(r#"{{"resources": {of_pod}, "containers": [{small}]}}"#);
            assert_eq!(requests(&pod), expected, "{of_pod}");
        }
        let only_limits = r#"{"resources": {"limits": {"cpu": 2, "memory": "4Ki"}}, "containers": [{}]}"#;
        assert_eq!(
            requests(only_limits),
            (2000, 4096, 1),
            "as the API server defaults it"
        );
        assert_eq!(
            requests(r#"{"runtimeClassName": "isolated", "overhead": {"cpu": "1m", "memory": "2"}}"#),
            (1, 2, 1)
        );
    }

    #[test]
    fn the_scarcest_resource_says_how_many_nodes_it_takes() {
        let node = ResourceList {
            cpu_millis: 4000,
            memory_bytes: 100,
            pods: 10,
            extended: [("a.b/c".to_owned(), 2)].into(),
        };
        let needs = |cpu_millis, memory_bytes, pods| {
            node.to_hold(&ResourceList {
                cpu_millis,
                memory_bytes,
                pods,
                ..ResourceList::default()
            })
        };
        assert_eq!(needs(0, 0, 0), Some(0));
        assert_eq!(needs(4001, 1, 1), Some(2));
        assert_eq!(needs(1, 1, 31), Some(4));
        assert_eq!(ResourceList::default().to_hold(&node), None);
        let of = |name: &str, amount| ResourceList {
            extended: [(name.to_owned(), amount)].into(),
            ..ResourceList::default()
        };
        assert_eq!(node.to_hold(&of("a.b/c", 5)), Some(3));
        assert_eq!(node.to_hold(&of("a.b/other", 1)), None);
    }
}
