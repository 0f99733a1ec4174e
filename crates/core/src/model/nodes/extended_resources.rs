//! Extended resources: which of them a node offers, how many, and how many a pod requests.
//!
//! Source: `k8s.io/component-helpers/resource` (`PodRequests`), `pkg/apis/core/v1/helper` (`IsExtendedResourceName`).

use std::collections::BTreeMap;

use super::node_affinity::Match;
use crate::model::objects::pod::{Container, PodSpec, Resources};
use crate::model::syntax::json_types::Quantity;

/// How many extended resources of a pod are compared with nodes. A review has a time limit, and a pod may name any number.
pub const MOST_EXTENDED: usize = 16;

/// Whether this is an extended resource: one that a device plugin or a cloud provider adds to nodes, such as
/// `microsoft.com/directx`.
pub fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/") && !resource.starts_with("requests.")
}

/// The extended resources that a node, or each node of a pool, offers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OfferedResources {
    /// Whether these are all: a node without a `status.allocatable` reports nothing yet, and a pool at zero may offer more
    /// than it declares.
    is_complete: bool,
    amounts: BTreeMap<String, u64>,
}

impl OfferedResources {
    /// What the `status.allocatable` of a node contains.
    pub fn of_node<'r>(allocatable: impl IntoIterator<Item = (&'r str, Quantity<'r>)>) -> Self {
        let mut offered = OfferedResources::default();
        for (name, amount) in allocatable {
            offered.is_complete = true;
            if is_extended(name) {
                let whole = amount.millis().unwrap_or_default() / 1000;
                let whole = u64::try_from(whole).unwrap_or(u64::MAX);
                offered.amounts.insert(name.to_owned(), whole);
            }
        }
        offered
    }

    /// What a pool declares, in an amount that is enough for any pod.
    pub fn of_pool<'r>(declared: impl IntoIterator<Item = &'r str>) -> Self {
        let amounts = declared.into_iter().map(|name| (name.to_owned(), u64::MAX));
        OfferedResources {
            is_complete: false,
            amounts: amounts.collect(),
        }
    }

    /// The names of the resources, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.amounts.keys().map(String::as_str)
    }

    /// Whether this resource is among them.
    pub fn contains(&self, resource: &str) -> bool {
        self.amounts.contains_key(resource)
    }

    /// Whether there is enough of a resource for one pod. 0 is unknown: a kubelet reports it while a device plugin restarts.
    pub fn offers(&self, resource: &str, amount: u64) -> Match {
        match self.amounts.get(resource) {
            _ if amount == 0 => Match::Yes,
            Some(0) => Match::Unknown,
            Some(offered) => Match::from(*offered >= amount),
            None if self.is_complete => Match::No,
            None => Match::Unknown,
        }
    }
}

/// What a container or a pod requests of a resource, in thousandths; a limit without a request is the request.
fn amount(of: &Resources<'_>, resource: &str) -> Option<u128> {
    let written = of.requests.get(resource).or_else(|| of.limits.get(resource))?;
    Some(written.millis().unwrap_or_default())
}

/// Whether the resources of a whole pod can contain this one (`IsSupportedPodLevelResource`).
fn has_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

impl PodSpec<'_> {
    /// The resources that its init and app containers name; one that several of them name occurs as often.
    pub fn named_resources(&self) -> impl Iterator<Item = &str> {
        let containers = self.init_containers.iter().chain(self.containers.iter());
        let resources = containers.filter_map(|container| container.resources.as_ref());
        let names = resources.flat_map(|of| of.requests.iter().chain(of.limits.iter()));
        names.map(|(name, _)| &**name)
    }

    /// What the scheduler reserves of a resource for the pod, in thousandths, without the overhead of its RuntimeClass: the
    /// larger of the sum of its containers and the largest init container, each including running sidecars. The pod's own
    /// `resources` replace that; a limit there applies if nothing requests the resource.
    pub fn requested_millis(&self, resource: &str) -> u128 {
        let pod_level = self.resources.as_ref().filter(|_| has_pod_level(resource));
        let own = pod_level.and_then(|of_pod| of_pod.requests.get(resource));
        if let Some(own) = own {
            return own.millis().unwrap_or_default();
        }
        let request = |container: &Container<'_>| amount(container.resources.as_ref()?, resource);
        let (mut sidecars, mut largest, mut together) = (0_u128, 0_u128, None);
        for container in &self.init_containers {
            let request = request(container);
            let now = sidecars.saturating_add(request.unwrap_or_default());
            largest = largest.max(now);
            if container.is_sidecar() {
                sidecars = now;
            }
            together = together.or(request.map(|_| 0));
        }
        for request in self.containers.iter().filter_map(request) {
            together = Some(together.unwrap_or(0_u128).saturating_add(request));
        }
        let Some(together) = together else {
            let limit = pod_level.and_then(|of_pod| of_pod.limits.get(resource));
            return limit.and_then(Quantity::millis).unwrap_or_default();
        };
        together.saturating_add(sidecars).max(largest)
    }

    /// The extended resources that the pod requests, each once, with the amount; at most the first [`MOST_EXTENDED`].
    pub fn extended_requests(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<(&str, u64)> = Vec::new();
        for name in self.named_resources().filter(|name| is_extended(name)) {
            if all.len() == MOST_EXTENDED {
                break;
            }
            if all.iter().all(|(known, _)| *known != name) {
                let whole = self.requested_millis(name).div_ceil(1000);
                all.push((name, u64::try_from(whole).unwrap_or(u64::MAX)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_names_any_number_of_resources_is_compared_by_the_first_ones() {
        let many = |count: usize| {
            let requests = (0..count).map(|at| (format!("a/{at:06}"), serde_json::json!("1")));
            let requests: serde_json::Map<_, _> = requests.collect();
            serde_json::json!({"containers": [{"name": "a", "resources": {"requests": requests}}]})
                .to_string()
        };
        for (count, compared) in [(3, 3), (MOST_EXTENDED, MOST_EXTENDED), (100_000, MOST_EXTENDED)] {
            let text = many(count);
            let spec: PodSpec<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(spec.extended_requests().len(), compared);
        }
    }

    #[test]
    fn extended_resources_have_a_domain_of_their_own() {
        for name in ["microsoft.com/directx", "vpc.amazonaws.com/PrivateIPv4Address"] {
            assert!(is_extended(name), "{name}");
        }
        for name in [
            "cpu",
            "hugepages-2Mi",
            "kubernetes.io/x",
            "a.kubernetes.io/x",
            "requests.a.com/x",
        ] {
            assert!(!is_extended(name), "{name}");
        }
    }

    #[test]
    fn a_node_offers_what_it_reports_and_a_pool_at_least_what_it_declares() {
        use Match::{No, Unknown, Yes};
        const DIRECTX: &str = "microsoft.com/directx";
        let quantity = |text: &'static str| Quantity(text.into());
        let (two, none) = (quantity("2"), quantity("0"));
        let node = OfferedResources::of_node([("cpu", two.clone()), (DIRECTX, two)]);
        assert_eq!(
            [0, 2, 3].map(|amount| node.offers(DIRECTX, amount)),
            [Yes, Yes, No]
        );
        assert_eq!(node.offers("corp.example/fpga", 1), No);
        let restarting = OfferedResources::of_node([(DIRECTX, none)]);
        assert_eq!(restarting.offers(DIRECTX, 1), Unknown);
        assert_eq!(OfferedResources::of_node([]).offers(DIRECTX, 1), Unknown);
        let pool = OfferedResources::of_pool([DIRECTX]);
        assert_eq!(
            (pool.offers(DIRECTX, 9), pool.offers("corp.example/fpga", 1)),
            (Yes, Unknown)
        );
    }

    #[test]
    fn a_pod_requests_an_extended_resource_as_the_scheduler_counts_it() {
        let requests = |spec: &str| {
            let spec: PodSpec<'_> = serde_json::from_str(spec).unwrap();
            let all = spec.extended_requests();
            let all = all.into_iter().map(|(name, amount)| format!("{name} {amount}"));
            all.collect::<Vec<_>>().join(", ")
        };
        let of =
            |amount: u8| format!(r#"{{"resources": {{"limits": {{"a.b/c": "{amount}", "cpu": "1"}}}}}}"#);
        let sidecar = of(2).replacen('{', r#"{"restartPolicy": "Always", "#, 1);
        assert_eq!(requests(r#"{"containers": [{}]}"#), "");
        assert_eq!(
            requests(&format!(r#"{{"containers": [{}, {}]}}"#, of(1), of(2))),
            "a.b/c 3"
        );
        let init = format!(r#"{{"containers": [{}], "initContainers": [{}]}}"#, of(1), of(4));
        assert_eq!(requests(&init), "a.b/c 4");
        let init = format!(r#"{{"containers": [{}], "initContainers": [{sidecar}]}}"#, of(1));
        assert_eq!(requests(&init), "a.b/c 3");
    }
}
