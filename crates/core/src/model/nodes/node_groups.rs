//! Resources that create nodes: `NodePools` of Karpenter, `MachineSets` and `MachineDeployments`, with what they
//! specify for their nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::node::{BUILD_LABEL, Host, OS_LABEL, Taint};
use crate::model::syntax::json::{items, labels, text};
use crate::model::windows::build::Build;

/// A resource that creates nodes of one kind; it may have none now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeGroupResource {
    /// Its kind and name, for example `NodePool windows`.
    pub source: String,
    pub name: String,
    /// The labels that its nodes will have, as far as it specifies them.
    pub labels: BTreeMap<String, String>,
    /// The taints that its nodes will have.
    pub taints: Vec<Taint>,
    /// The keys of the startup taints that its nodes will have, which Karpenter expects to be removed.
    pub startup_taints: Vec<String>,
    /// The number of nodes it requests, if specified.
    pub replicas: Option<u64>,
    /// Whether it specifies that its nodes run Windows.
    pub is_windows: bool,
    /// Whether it states the operating system of its nodes by label or requirement.
    pub states_os: bool,
    /// The build of its nodes, if specified.
    pub build: Option<Build>,
    /// The name of the EC2NodeClass that a `NodePool` of Karpenter uses on AWS.
    pub node_class: Option<String>,
}

/// The Windows images of an EC2NodeClass, by the value of `amiFamily` in lower case, which is also the beginning of the
/// alias of an AMI selector, as in `windows2022@latest`.
///
/// Source: <https://karpenter.sh/docs/concepts/nodeclasses/>; 2025: aws/karpenter-provider-aws#8842.
const AMI_FAMILIES: [(&str, Build); 3] = [
    ("windows2019", Build::new(17763)),
    ("windows2022", Build::new(20348)),
    ("windows2025", Build::new(26100)),
];

/// The name of an EC2NodeClass, and the Windows build of its images; `None` if they are for Linux or not known.
pub fn ec2_node_class(object: &Value) -> Option<(String, Build)> {
    let aliases = items(object, "/spec/amiSelectorTerms").map(|term| text(term, "/alias"));
    let build = aliases
        .chain([text(object, "/spec/amiFamily")])
        .find_map(|image| {
            let family = image.split('@').next()?.to_ascii_lowercase();
            let (_, build) = AMI_FAMILIES.into_iter().find(|(name, _)| *name == family)?;
            Some(build)
        })?;
    Some((text(object, "/metadata/name"), build))
}

/// The labels that nodes of a resource will have, as far as it specifies them.
fn labels_of_nodes(object: &Value) -> BTreeMap<String, String> {
    // They are at different paths: Karpenter and Cluster API, OpenShift.
    let mut all: BTreeMap<String, String> = labels(object, "/spec/template/metadata/labels").collect();
    all.extend(labels(object, "/spec/template/spec/metadata/labels"));
    for requirement in items(object, "/spec/template/spec/requirements") {
        let values: Vec<&str> = items(requirement, "/values").filter_map(Value::as_str).collect();
        if let ("In", [only]) = (text(requirement, "/operator").as_str(), values.as_slice()) {
            all.insert(text(requirement, "/key"), (*only).to_owned());
        }
    }
    // Hints for the cluster autoscaler about nodes that do not exist yet, for example `os=windows,size=big`.
    let hints = "/metadata/annotations/capacity.cluster-autoscaler.kubernetes.io~1labels";
    let hints = text(object, hints);
    let hints = hints.split(',').filter_map(|pair| pair.split_once('='));
    all.extend(hints.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())));
    all
}

impl NodeGroupResource {
    /// Reads a `NodePool` of Karpenter, a `MachineSet` or a `MachineDeployment`.
    pub fn read(kind: &str, object: &Value) -> Self {
        let name = text(object, "/metadata/name");
        let mut of_nodes = labels_of_nodes(object);
        let taints: Vec<Taint> = items(object, "/spec/template/spec/taints")
            .map(|taint| Taint {
                key: text(taint, "/key"),
                value: text(taint, "/value"),
                effect: text(taint, "/effect"),
            })
            .collect();
        let build = of_nodes.get(BUILD_LABEL);
        let build = build.and_then(|build| Build::parse_label(build));
        let reported = |key: &str| {
            let value = of_nodes.get(key);
            value.is_some_and(|value| value.eq_ignore_ascii_case("windows"))
        };
        let is_windows = reported(OS_LABEL)
            || reported("machine.openshift.io/os-id")
            || build.is_some()
            || taints.iter().any(Taint::marks_windows);
        let mut requirements = items(object, "/spec/template/spec/requirements");
        let states_os = of_nodes.contains_key(OS_LABEL)
            || requirements.any(|requirement| text(requirement, "/key") == OS_LABEL);
        of_nodes.retain(|key, _| !key.starts_with("machine.openshift.io/"));
        if kind == "NodePool" {
            of_nodes.insert("karpenter.sh/nodepool".to_owned(), name.clone());
        }
        NodeGroupResource {
            source: format!("{kind} {name}"),
            name,
            labels: of_nodes,
            taints,
            startup_taints: items(object, "/spec/template/spec/startupTaints")
                .map(|taint| text(taint, "/key"))
                .collect(),
            replicas: object.pointer("/spec/replicas").and_then(Value::as_u64),
            is_windows,
            states_os,
            build,
            node_class: (text(object, "/spec/template/spec/nodeClassRef/kind") == "EC2NodeClass")
                .then(|| text(object, "/spec/template/spec/nodeClassRef/name")),
        }
    }

    /// Whether its nodes join with the startup taint that Transom removes.
    pub fn sets_startup_taint(&self) -> bool {
        let taints = self.taints.iter().map(|taint| &taint.key);
        taints
            .chain(&self.startup_taints)
            .any(|key| key == Taint::STARTUP_KEY)
    }

    /// Adds what its EC2NodeClass states about its nodes.
    pub fn add_node_class(&mut self, builds: &BTreeMap<String, Build>) {
        if let Some(build) = self.node_class.as_ref().and_then(|name| builds.get(name)) {
            self.is_windows = true;
            self.build.get_or_insert(*build);
        }
    }

    /// The pool as a host that may be at zero; `None` if it specifies no Windows. Karpenter knows the label of the build for
    /// the images of an EC2NodeClass.
    ///
    /// Source: aws/karpenter-provider-aws, `pkg/providers/instancetype/types.go`, computeRequirements.
    pub fn host(&self) -> Option<Host> {
        let mut labels = self.labels.clone();
        if let Some(build) = self.build.filter(|_| self.node_class.is_some()) {
            labels
                .entry(BUILD_LABEL.to_owned())
                .or_insert_with(|| build.to_string());
        }
        self.is_windows.then(|| Host {
            name: self.name.clone(),
            build: self.build,
            taints: self.taints.clone(),
            labels: labels.into(),
            may_be_at_zero: true,
            ..Host::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_makes_windows_nodes_is_recognised_by_what_it_says_of_them() {
        let pool = json!({"metadata": {"name": "win"}, "spec": {"template": {"metadata": {"labels": {"team": "a"}}, "spec": {
            "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]},
                {"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.20348"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}]}}}});
        let pool = NodeGroupResource::read("NodePool", &pool);
        assert_eq!((pool.source.as_str(), pool.is_windows), ("NodePool win", true));
        assert_eq!(pool.build, Some(Build::new(20348)));
        assert_eq!(pool.labels["karpenter.sh/nodepool"], "win");
        assert!(!pool.labels.contains_key("karpenter.sh/capacity-type"));
        assert_eq!(pool.taints, [Taint::no_schedule("os", "windows")]);
        assert!(!pool.sets_startup_taint());
        for field in ["taints", "startupTaints"] {
            let spec = json!({field: [{"key": Taint::STARTUP_KEY, "effect": "NoSchedule"}]});
            let pool = json!({"metadata": {"name": "win"}, "spec": {"template": {"spec": spec}}});
            assert!(
                NodeGroupResource::read("NodePool", &pool).sets_startup_taint(),
                "{field}"
            );
        }

        let set = json!({"metadata": {"name": "winworker"}, "spec": {"replicas": 0, "template": {
            "metadata": {"labels": {"machine.openshift.io/os-id": "Windows"}}, "spec": {}}}});
        let set = NodeGroupResource::read("MachineSet", &set);
        assert_eq!((set.is_windows, set.replicas), (true, Some(0)));
        assert!(set.labels.is_empty(), "{set:?}");

        let by_class = |spec: Value| {
            let class = json!({"metadata": {"name": "win"}, "spec": spec});
            let pool = json!({"metadata": {"name": "p"}, "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "win"}}}}});
            let mut pool = NodeGroupResource::read("NodePool", &pool);
            pool.add_node_class(&ec2_node_class(&class).into_iter().collect());
            (pool.is_windows, pool.build)
        };
        for (spec, build) in [
            (json!({"amiFamily": "Windows2022"}), Some(Build::new(20348))),
            (
                json!({"amiSelectorTerms": [{"alias": "windows2025@latest"}]}),
                Some(Build::new(26100)),
            ),
            (json!({"amiFamily": "AL2023"}), None),
            (json!({"amiSelectorTerms": [{"id": "ami-1"}]}), None),
        ] {
            assert_eq!(by_class(spec.clone()), (build.is_some(), build), "{spec}");
        }

        let linux = json!({"metadata": {"name": "l"}, "spec": {"replicas": 0, "template": {"spec": {}}}});
        assert!(!NodeGroupResource::read("MachineSet", &linux).is_windows);
    }
}
