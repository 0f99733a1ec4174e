//! Reads the environment of Transom before it is installed: other engines, autoscalers, webhooks. It writes nothing.

mod access;
mod gmsa;
mod readiness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::Client;
use serde_json::Value;

use super::errors::{ApiError, answered};
use super::list::{Listing, UnreadPart, collect, for_each_as};
use super::offline::OfflineCluster;
use crate::model::cluster::facts::GMSA_GROUP;
use crate::model::knowledge::NodePlatform;
use crate::model::nodes::node::{NodeSigns as _, PRIVATE_IPV4_RESOURCE, Taint};
use crate::model::nodes::node_affinity::{KnownNodeLabels, LabelValue};
use crate::model::nodes::node_groups::ec2_node_class;
use crate::model::objects::resources::Node;
use crate::model::syntax::json::{items, text};

pub use self::access::{Account, may_create};
pub use self::gmsa::{GmsaUse, may_use};
pub use self::readiness::ReadinessRule;
pub use crate::model::nodes::node_groups::NodeGroupResource;

/// How many objects of one kind are named at most that could not be read.
const MOST_NAMED: usize = 10;

/// The status of the cluster autoscaler, as a part that could not be read.
pub const AUTOSCALER_STATUS: &str = "configmaps cluster-autoscaler-status of kube-system";

/// The kinds that make nodes, where their API group is there.
const SCALED: [(&str, &str, &str); 4] = [
    ("karpenter.sh", "nodepools", "NodePool"),
    ("machine.openshift.io", "machinesets", "MachineSet"),
    ("cluster.x-k8s.io", "machinesets", "MachineSet"),
    ("cluster.x-k8s.io", "machinedeployments", "MachineDeployment"),
];

/// The environment of Transom in a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterEnvironment {
    /// The release of the API server, as in `v1.36.2`.
    pub version: String,
    /// The API groups, each with the version that the API server prefers.
    pub groups: BTreeMap<String, String>,
    pub nodes: Vec<AnyNode>,
    /// The webhook configurations.
    pub hooks: Vec<WebhookPresence>,
    /// Webhooks that refuse pods, because nothing answers for them.
    pub unanswered: Vec<UnansweredWebhook>,
    /// The names of `ValidatingAdmissionPolicyBindings`.
    pub bindings: Vec<String>,
    /// The names of other engines' objects, by group and resource as in `kyverno.io/clusterpolicies`.
    pub named: BTreeMap<String, Vec<String>>,
    /// What makes nodes: Karpenter's `NodePools`, `MachineSets`, `MachineDeployments`.
    pub scaled: Vec<NodeGroupResource>,
    /// The status of the cluster autoscaler.
    pub autoscaler: Option<String>,
    /// The rules of node-readiness-controller, without those in dry run.
    pub readiness_rules: Vec<ReadinessRule>,
    /// The `GMSACredentialSpecs`, each with what is wrong with it; `None` without the kind, or if they could not be read.
    pub credential_specs: Option<BTreeMap<String, Option<String>>>,
    /// How many Services have `externalTrafficPolicy: Cluster`. They are read only on AKS with Windows nodes.
    pub cluster_traffic_services: Option<usize>,
    /// What could not be read.
    pub unread: Vec<UnreadPart>,
}

/// Any node, with what tells its platform and what keeps pods off it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AnyNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// `spec.providerID`; empty where there is none.
    pub provider_id: String,
    /// Whether it is a Windows node.
    pub is_windows: bool,
    /// What it has for pods.
    pub allocatable: NodeRoom,
}

/// What a node has for pods, as far as it reports it (`status.allocatable`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeRoom {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// The number of pods.
    pub pods: Option<u64>,
    /// Addresses of the VPC, on EKS.
    pub addresses: Option<u64>,
}

impl NodeRoom {
    fn of(node: &Node<'_>) -> Self {
        let whole = |name: &str| {
            let amount = node.status.allocatable.get(name)?;
            u64::try_from(amount.millis()? / 1000).ok()
        };
        NodeRoom {
            memory: whole("memory"),
            pods: whole("pods"),
            addresses: whole(PRIVATE_IPV4_RESOURCE),
        }
    }
}

impl KnownNodeLabels for AnyNode {
    fn node_name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn label_value(&self, key: &str) -> LabelValue<'_> {
        self.labels.get(key).map(String::as_str).into()
    }
}

impl AnyNode {
    /// A node of the API server; `None` if it is not what its kind says.
    pub fn read(json: &str) -> Option<Self> {
        let node: Node<'_> = serde_json::from_str(json).ok()?;
        Some(AnyNode {
            name: node.name().to_owned(),
            labels: Arc::unwrap_or_clone(node.labels()),
            taints: node.taints(),
            provider_id: node.spec.provider_id.to_string(),
            is_windows: node.is_windows(),
            allocatable: NodeRoom::of(&node),
        })
    }
}

/// A webhook configuration of the cluster, as far as it affects pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebhookPresence {
    /// Whether it changes objects.
    pub is_mutating: bool,
    /// Its name: mutating ones are called in the order of their names.
    pub name: String,
    /// The namespaces of the Services that are called.
    pub namespaces: BTreeSet<String>,
    /// Whether pods are among what it is called for.
    pub sees_pods: bool,
}

/// A webhook for pods with `failurePolicy: Fail` whose Service has no ready endpoint: the API server refuses every pod that
/// it is called for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct UnansweredWebhook {
    /// The name of its configuration.
    pub configuration: String,
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub service: String,
}

/// Whether a webhook is called for pods.
fn sees_pods(hook: &Value) -> bool {
    let mut resources = items(hook, "/rules").flat_map(|rule| items(rule, "/resources"));
    resources.any(|resource| matches!(resource.as_str(), Some("pods" | "*" | "*/*")))
}

/// The webhooks of a configuration that are called for pods with `failurePolicy: Fail`, each with its Service.
fn failing_closed(object: &Value) -> BTreeSet<UnansweredWebhook> {
    // Fail is the default of v1.
    let fails = |hook: &&Value| text(hook, "/failurePolicy") != "Ignore" && sees_pods(hook);
    let hooks = items(object, "/webhooks").filter(fails);
    let hooks = hooks.map(|hook| UnansweredWebhook {
        configuration: text(object, "/metadata/name"),
        namespace: text(hook, "/clientConfig/service/namespace"),
        service: text(hook, "/clientConfig/service/name"),
    });
    hooks.filter(|hook| !hook.service.is_empty()).collect()
}

/// Whether one of these EndpointSlices has a ready endpoint. An endpoint without the condition is ready.
fn has_ready_endpoint(slices: &[Value]) -> bool {
    let mut endpoints = slices.iter().flat_map(|slice| items(slice, "/endpoints"));
    endpoints.any(|endpoint| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false)))
}

/// Reads it, except what [`open`](super::offline::open) has read already: the version, the API groups, and every node.
/// `named`: the kinds of other engines whose names are read, by group and resource. A part that cannot be read is reported,
/// and left empty.
pub async fn read<'n>(
    client: &Client,
    opened: &OfflineCluster,
    nodes: Vec<AnyNode>,
    named: impl IntoIterator<Item = (&'n str, &'n str)>,
) -> ClusterEnvironment {
    let mut reading = EnvironmentReader {
        client,
        environment: ClusterEnvironment {
            version: opened.version.clone(),
            nodes,
            ..ClusterEnvironment::default()
        },
    };
    reading.groups(opened.groups.as_ref());
    reading.hooks("mutatingwebhookconfigurations", true).await;
    reading.hooks("validatingwebhookconfigurations", false).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    reading.environment.bindings = reading.names(path).await;
    for (group, resource) in named {
        if let Some(path) = reading.path(group, resource) {
            let names = reading.names(&path).await;
            let key = format!("{group}/{resource}");
            reading.environment.named.insert(key, names);
        }
    }
    reading.scaled().await;
    reading.node_classes().await;
    reading.autoscaler().await;
    reading.readiness_rules().await;
    reading.credential_specs().await;
    reading.cluster_traffic_services().await;
    reading.environment
}

/// The resources that create nodes with the startup taint, as in `NodePool windows`, as far as they can be read.
pub async fn pools_with_startup_taint(client: &Client) -> BTreeSet<String> {
    let mut reading = EnvironmentReader {
        client,
        environment: ClusterEnvironment::default(),
    };
    let groups = answered(client.list_api_groups()).await;
    reading.groups(groups.as_ref());
    reading.scaled().await;
    let declaring = reading.environment.scaled.into_iter();
    let declaring = declaring.filter(NodeGroupResource::sets_startup_taint);
    declaring.map(|pool| pool.source).collect()
}

struct EnvironmentReader<'r> {
    client: &'r Client,
    environment: ClusterEnvironment,
}

impl EnvironmentReader<'_> {
    fn groups(&mut self, groups: Result<&APIGroupList, &ApiError>) {
        match groups {
            Ok(list) => {
                let preferred = list.groups.iter().filter_map(|group| {
                    let version = (group.preferred_version.as_ref()).or_else(|| group.versions.first())?;
                    Some((group.name.clone(), version.version.clone()))
                });
                self.environment.groups = preferred.collect();
            }
            Err(why) => self.note("API groups", why),
        }
    }

    fn path(&self, group: &str, resource: &str) -> Option<String> {
        let version = self.environment.groups.get(group)?;
        Some(format!("/apis/{group}/{version}/{resource}"))
    }

    async fn hooks(&mut self, resource: &str, is_mutating: bool) {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        let found = self.all(&path).await;
        let found = found
            .iter()
            .map(|object| (WebhookPresence::read(object, is_mutating), failing_closed(object)));
        for (hooks, failing) in found.collect::<Vec<_>>() {
            self.environment.hooks.push(hooks);
            self.unanswered(failing).await;
        }
    }

    /// Notes the webhooks whose Service has no ready endpoint.
    async fn unanswered(&mut self, failing: BTreeSet<UnansweredWebhook>) {
        for hook in failing.into_iter().take(MOST_NAMED) {
            let listing = Listing::new("/apis/discovery.k8s.io/v1/endpointslices")
                .in_namespace(&hook.namespace)
                .with_labels(&format!("kubernetes.io/service-name={}", hook.service));
            match collect::<Value>(self.client, listing).await {
                Ok(slices) if has_ready_endpoint(&slices) => {}
                Ok(_) => self.environment.unanswered.push(hook),
                Err(why) => self.note("endpointslices", &why),
            }
        }
    }

    async fn names(&mut self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.each(path, |object| names.push(text(&object, "/metadata/name")))
            .await;
        names
    }

    /// The resources that create nodes.
    async fn scaled(&mut self) {
        for (group, resource, kind) in SCALED {
            if let Some(path) = self.path(group, resource) {
                let found = self.all(&path).await;
                let found = found.iter().map(|object| NodeGroupResource::read(kind, object));
                self.environment.scaled.extend(found);
            }
        }
    }

    /// The builds of Karpenter's pools on AWS. Their nodes get the label of the build only from the kubelet.
    async fn node_classes(&mut self) {
        let uses_one = |pool: &NodeGroupResource| pool.node_class.is_some();
        if !self.environment.scaled.iter().any(uses_one) {
            return;
        }
        let Some(path) = self.path("karpenter.k8s.aws", "ec2nodeclasses") else {
            return;
        };
        let classes = self.all(&path).await;
        let builds: BTreeMap<_, _> = classes.iter().filter_map(ec2_node_class).collect();
        for pool in &mut self.environment.scaled {
            pool.add_node_class(&builds);
        }
    }

    async fn readiness_rules(&mut self) {
        if let Some(path) = self.path("readiness.node.x-k8s.io", "nodereadinessrules") {
            let rules = self.all(&path).await;
            let rules = rules
                .iter()
                .filter(|rule| rule.pointer("/spec/dryRun") != Some(&Value::Bool(true)));
            self.environment.readiness_rules = rules.map(ReadinessRule::read).collect();
        }
    }

    /// The objects of a list; `None` if it could not be read to its end, which is noted.
    async fn whole(&mut self, path: &str) -> Option<Vec<Value>> {
        let before = self.environment.unread.len();
        let all = self.all(path).await;
        (self.environment.unread.len() == before).then_some(all)
    }

    async fn credential_specs(&mut self) {
        if let Some(path) = self.path(GMSA_GROUP, gmsa::SPECS) {
            let specs = self.whole(&path).await;
            self.environment.credential_specs =
                specs.map(|specs| specs.iter().map(gmsa::credential_spec).collect());
        }
    }

    /// Only on AKS, which documents a limit, and where there are Windows nodes.
    async fn cluster_traffic_services(&mut self) {
        let is_aks = |node: &AnyNode| {
            let platform = NodePlatform::of_labels(node.labels.keys().map(String::as_str));
            node.is_windows && platform == Some(NodePlatform::Aks)
        };
        if self.environment.nodes.iter().any(is_aks) {
            let services = self.whole("/api/v1/services").await;
            let is_cluster = |service: &&Value| text(service, "/spec/externalTrafficPolicy") == "Cluster";
            self.environment.cluster_traffic_services =
                services.map(|services| services.iter().filter(is_cluster).count());
        }
    }

    async fn autoscaler(&mut self) {
        let listing = Listing::new("/api/v1/configmaps").in_namespace("kube-system");
        let text = listing.get(self.client, "cluster-autoscaler-status").await;
        let map = text.and_then(|text| {
            let map = serde_json::from_str::<Value>(&text);
            map.map_err(|why| ApiError::Other(format!("it does not parse: {why}")))
        });
        match map {
            Ok(map) => {
                let status = map.pointer("/data/status").and_then(Value::as_str);
                self.environment.autoscaler = status.map(str::to_owned);
            }
            Err(ApiError::NotFound) => {}
            Err(why) => self.note(AUTOSCALER_STATUS, &why),
        }
    }

    /// Everything of one kind.
    async fn all(&mut self, path: &str) -> Vec<Value> {
        let mut all = Vec::new();
        self.each(path, |object| all.push(object)).await;
        all
    }

    /// Hands every object of one kind to `take`; an object that does not parse is reported and omitted.
    async fn each(&mut self, path: &str, mut take: impl FnMut(Value) + Send) {
        let mut bad = Vec::new();
        let listing = Listing::new(path);
        let resource = listing.resource().to_owned();
        let note = |name: &str, error: &serde_json::Error| bad.push((name.to_owned(), error.to_string()));
        match for_each_as(self.client, listing, |object, _| take(object), note).await {
            Err(error) if error.why != ApiError::NotFound => self.note(&resource, &error.why),
            // Without the kind there are no objects of it: not every group has it, or its definition was deleted.
            _ => {}
        }
        for (name, why) in bad.iter().take(MOST_NAMED) {
            let why = ApiError::Other(format!("it does not parse: {why}"));
            self.note(&format!("{resource} {name}"), &why);
        }
        if let Some(more) = bad.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            let why = ApiError::Other("they do not parse".to_owned());
            self.note(&format!("{more} more {resource}"), &why);
        }
    }

    fn note(&mut self, resource: &str, why: &ApiError) {
        self.environment.unread.push(UnreadPart::new(resource, why));
    }
}

impl WebhookPresence {
    fn read(object: &Value, is_mutating: bool) -> Self {
        let namespaces = items(object, "/webhooks")
            .map(|hook| text(hook, "/clientConfig/service/namespace"))
            .filter(|namespace| !namespace.is_empty());
        WebhookPresence {
            is_mutating,
            name: text(object, "/metadata/name"),
            namespaces: namespaces.collect(),
            sees_pods: items(object, "/webhooks").any(sees_pods),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_that_fails_closed_without_an_endpoint_is_unanswered() {
        let object = |policy: &str, resource: &str| {
            json!({"metadata": {"name": "gmsa"}, "webhooks": [{"failurePolicy": policy, "rules": [{"resources": [resource]}],
                "clientConfig": {"service": {"namespace": "gmsa", "name": "windows-gmsa"}}}]})
        };
        let hooks = failing_closed(&object("Fail", "pods"));
        let hook = hooks.first().unwrap();
        assert_eq!(
            (&*hook.configuration, &*hook.namespace, &*hook.service),
            ("gmsa", "gmsa", "windows-gmsa")
        );
        assert!(failing_closed(&object("Ignore", "pods")).is_empty());
        assert!(failing_closed(&object("Fail", "deployments")).is_empty());
        let slices = |endpoints: Value| [json!({"endpoints": endpoints})];
        assert!(!has_ready_endpoint(&[]));
        assert!(!has_ready_endpoint(&slices(
            json!([{"conditions": {"ready": false}}])
        )));
        assert!(has_ready_endpoint(&slices(
            json!([{"conditions": {"ready": true}}])
        )));
        assert!(has_ready_endpoint(&slices(json!([{"addresses": ["10.0.0.1"]}]))));
    }

    #[test]
    fn a_node_whose_kubelet_has_not_reported_is_a_windows_node_by_either_label() {
        let is_windows = |labels: Value, os: &str| {
            let node = json!({"metadata": {"name": "n", "labels": labels}, "spec": {"providerID": "azure:///x"},
                "status": {"nodeInfo": {"operatingSystem": os}}});
            let node = AnyNode::read(&node.to_string()).unwrap();
            assert_eq!((&*node.name, &*node.provider_id), ("n", "azure:///x"));
            node.is_windows
        };
        assert!(is_windows(json!({"kubernetes.io/os": "windows"}), ""));
        assert!(is_windows(json!({"beta.kubernetes.io/os": "windows"}), ""));
        assert!(is_windows(json!({}), "Windows"));
        assert!(!is_windows(json!({"kubernetes.io/os": "windows"}), "linux"));
        assert!(!is_windows(json!({}), ""));
    }

    #[test]
    fn a_webhook_configuration_says_whether_it_sees_pods_and_where_its_services_are() {
        let object = json!({"metadata": {"name": "kyverno"}, "webhooks": [
            {"clientConfig": {"service": {"namespace": "kyverno", "name": "svc"}}, "rules": [{"resources": ["*/*"]}]},
            {"clientConfig": {"url": "https://x"}, "rules": [{"resources": ["deployments"]}]}]});
        let hooks = WebhookPresence::read(&object, true);
        assert!(hooks.sees_pods && hooks.is_mutating);
        assert_eq!(hooks.namespaces, ["kyverno".to_owned()].into());
        let other =
            json!({"metadata": {"name": "x"}, "webhooks": [{"rules": [{"resources": ["services"]}]}]});
        assert!(!WebhookPresence::read(&other, false).sees_pods);
    }
}
