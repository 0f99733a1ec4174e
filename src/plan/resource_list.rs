//! The resources that pods request and nodes provide.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::image::{ImageRef, OsHint, os_hint};
use crate::model::json_types::{List, Map, Quantity, Str};

/// CPU, memory and number of pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Number of pods.
    pub pods: u64,
}

impl ResourceList {
    /// Reads a map of resources; missing or invalid entries are zero.
    pub(super) fn of(resources: &Map<'_, Quantity<'_>>) -> Self {
        let millis = |name| resources.get(name).and_then(Quantity::millis).unwrap_or_default();
        let whole = |name| clamp(millis(name).div_ceil(1000));
        ResourceList {
            cpu_millis: clamp(millis("cpu")),
            memory_bytes: whole("memory"),
            pods: whole("pods"),
        }
    }

    /// Multiplies every resource.
    #[must_use]
    pub(super) fn times(self, count: u64) -> Self {
        self.each(ResourceList::all(count), u64::saturating_mul)
    }

    /// Subtracts; results below zero become zero.
    #[must_use]
    pub(super) fn without(self, other: ResourceList) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// The maximum of each resource.
    #[must_use]
    fn max(self, other: ResourceList) -> Self {
        self.each(other, u64::max)
    }

    /// How many of these are needed to hold `other`; `None` if no number is enough.
    pub(super) fn to_hold(self, other: ResourceList) -> Option<u64> {
        let count = |room: u64, needed: u64| match (room, needed) {
            (_, 0) => Some(0),
            (0, _) => None,
            (room, needed) => Some(needed.div_ceil(room)),
        };
        let cpu = count(self.cpu_millis, other.cpu_millis)?;
        let memory = count(self.memory_bytes, other.memory_bytes)?;
        Some(cpu.max(memory).max(count(self.pods, other.pods)?))
    }

    /// Whether every resource is greater than zero.
    pub(super) fn is_whole(self) -> bool {
        self.cpu_millis > 0 && self.memory_bytes > 0 && self.pods > 0
    }

    fn all(count: u64) -> Self {
        ResourceList {
            cpu_millis: count,
            memory_bytes: count,
            pods: count,
        }
    }

    fn each(self, other: ResourceList, with: fn(u64, u64) -> u64) -> Self {
        ResourceList {
            cpu_millis: with(self.cpu_millis, other.cpu_millis),
            memory_bytes: with(self.memory_bytes, other.memory_bytes),
            pods: with(self.pods, other.pods),
        }
    }
}

impl AddAssign for ResourceList {
    fn add_assign(&mut self, other: ResourceList) {
        *self = self.each(other, u64::saturating_add);
    }
}

fn clamp(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The fields of a pod spec that determine its requests.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub(super) struct PodRequests<'a> {
    pub node_name: Option<Str<'a>>,
    init_containers: List<ContainerRequests<'a>>,
    containers: List<ContainerRequests<'a>>,
    overhead: Map<'a, Quantity<'a>>,
    runtime_class_name: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct ContainerRequests<'a> {
    image: Option<Str<'a>>,
    resources: Option<RequestedResources<'a>>,
    restart_policy: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct RequestedResources<'a> {
    limits: Map<'a, Quantity<'a>>,
    requests: Map<'a, Quantity<'a>>,
}

impl PodRequests<'_> {
    /// Whether the name of one of its images says Linux.
    pub(super) fn has_linux_image(&self) -> bool {
        let mut containers = self.init_containers.iter().chain(self.containers.iter());
        containers.any(|container| {
            let image = ImageRef::parse(container.image.as_deref().unwrap_or_default());
            image.is_ok_and(|image| {
                matches!(
                    os_hint(&image),
                    OsHint::LinuxTag(_) | OsHint::LinuxOnlyRepository | OsHint::DotnetLinuxOnly
                )
            })
        })
    }

    /// The requests that the scheduler computes for the pod: the larger of the sum of its containers and the
    /// largest init container, each including running sidecars, plus the overhead of its RuntimeClass. If a
    /// container sets a limit without a request, the limit is the request.
    ///
    /// Source: `k8s.io/component-helpers/resource`, `PodRequests`.
    pub(super) fn requests(&self, overhead_of: impl Fn(&str) -> Option<ResourceList>) -> ResourceList {
        let mut together = ResourceList::default();
        for container in &self.containers {
            together += container.requests();
        }
        let (mut sidecars, mut most) = (ResourceList::default(), ResourceList::default());
        for container in &self.init_containers {
            let mut now = sidecars;
            now += container.requests();
            most = most.max(now);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = now;
            }
        }
        together += sidecars;
        let mut all = together.max(most);
        let of_class = || overhead_of(self.runtime_class_name.as_deref()?);
        all += if self.overhead.is_empty() {
            of_class().unwrap_or_default()
        } else {
            ResourceList::of(&self.overhead)
        };
        ResourceList { pods: 1, ..all }
    }
}

impl ContainerRequests<'_> {
    fn requests(&self) -> ResourceList {
        let Some(resources) = &self.resources else {
            return ResourceList::default();
        };
        let (requests, limits) = (&resources.requests, &resources.limits);
        let (requested, most) = (ResourceList::of(requests), ResourceList::of(limits));
        let or = |name, requested, most| {
            if requests.get(name).is_some() {
                requested
            } else {
                most
            }
        };
        ResourceList {
            cpu_millis: or("cpu", requested.cpu_millis, most.cpu_millis),
            memory_bytes: or("memory", requested.memory_bytes, most.memory_bytes),
            pods: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_asks_for_what_the_scheduler_counts() {
        let requests = |spec: &str| {
            let asking: PodRequests<'_> = serde_json::from_str(spec).unwrap();
            let amount = asking.requests(|class| (class == "isolated").then(|| ResourceList::all(7)));
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
        };
        let needs = |cpu_millis, memory_bytes, pods| {
            node.to_hold(ResourceList {
                cpu_millis,
                memory_bytes,
                pods,
            })
        };
        assert_eq!(needs(0, 0, 0), Some(0));
        assert_eq!(needs(4001, 1, 1), Some(2));
        assert_eq!(needs(1, 1, 31), Some(4));
        assert_eq!(ResourceList::default().to_hold(node), None);
    }
}
