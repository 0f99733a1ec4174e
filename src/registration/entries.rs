//! Every entry of the webhook configurations: its phase, what it matches, and its path.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use super::match_conditions::MatchScope;
use super::{names, strings};
use crate::model::objects::workload::CUSTOM_WORKLOADS;
use crate::model::objects::workload::configured::ConfiguredKind;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WebhookPhase {
    Mutate,
    Validate,
}

/// An entry that can be registered.
#[derive(Debug)]
pub(super) struct EntryKind {
    pub name: &'static str,
    pub phase: WebhookPhase,
    pub scope: MatchScope,
}

/// The entries, in the order in which they are registered.
///
/// Some have no counterpart in `/mutate`, because it need not report a finding before the API server rejects the object: the
/// API server does not validate the pods of custom resources, and rejects nothing in a template without a sign. The pods of
/// such a template carry the selector of the namespace, and so a sign, when webhooks are called.
///
/// The entry for images is for every namespace, because the other entries without a sign leave its pods to it. It also
/// matches workloads, so that a look-up begins before their first pod.
pub(super) static ENTRIES: [EntryKind; 11] = [
    mutate(names::MUTATE, MatchScope::Sign),
    mutate(names::DEFAULT_OS_MUTATE, MatchScope::Unsaid),
    mutate(names::LINUX_PODS_MUTATE, MatchScope::LinuxPods),
    mutate(names::IMAGES_MUTATE, MatchScope::Images),
    validate(names::CERTAIN_VALIDATE, MatchScope::Certain),
    validate(names::VALIDATE, MatchScope::Sign),
    validate(names::CUSTOM_RESOURCES_VALIDATE, MatchScope::CustomResources),
    validate(names::DEFAULT_OS_VALIDATE, MatchScope::Unsaid),
    validate(names::DEFAULT_NODE_SELECTOR_VALIDATE, MatchScope::UnsaidTemplates),
    validate(names::LINUX_PODS_VALIDATE, MatchScope::LinuxPods),
    validate(names::IMAGES_VALIDATE, MatchScope::Images),
];

const fn mutate(name: &'static str, scope: MatchScope) -> EntryKind {
    EntryKind {
        name,
        phase: WebhookPhase::Mutate,
        scope,
    }
}

const fn validate(name: &'static str, scope: MatchScope) -> EntryKind {
    EntryKind {
        name,
        phase: WebhookPhase::Validate,
        scope,
    }
}

impl EntryKind {
    /// The path at which the webhook serves the entry.
    pub fn path(&self) -> &'static str {
        match self.phase {
            WebhookPhase::Mutate => "/mutate",
            WebhookPhase::Validate => "/validate",
        }
    }

    /// Its rules. `configured`: the custom resources in addition to the built-in ones.
    pub fn rules(&self, configured: &[ConfiguredKind]) -> Vec<RuleWithOperations> {
        match self.scope {
            MatchScope::LinuxPods => linux_pods_rules(self.phase),
            MatchScope::CustomResources => custom_resource_rules(configured),
            MatchScope::UnsaidTemplates => template_rules(),
            MatchScope::Sign
            | MatchScope::Certain
            | MatchScope::Rest
            | MatchScope::Unsaid
            | MatchScope::Images => rules(self.phase),
        }
    }
}

/// What the entries match: pods, objects with a pod template, and two subresources. Never nodes, leases,
/// bindings, status, scale or deletions.
fn rules(phase: WebhookPhase) -> Vec<RuleWithOperations> {
    let pods = match phase {
        // Nothing that placement sets can be changed on an existing pod.
        WebhookPhase::Mutate => [
            rule("", &["pods"], &["CREATE"]),
            rule("", &["pods/ephemeralcontainers"], &["UPDATE"]),
        ],
        WebhookPhase::Validate => [
            rule("", &["pods"], WRITTEN),
            rule("", &["pods/ephemeralcontainers", "pods/resize"], &["UPDATE"]),
        ],
    };
    pods.into_iter().chain(template_rules()).collect()
}

const WRITTEN: &[&str] = &["CREATE", "UPDATE"];

/// The objects of Kubernetes with a pod template.
fn template_rules() -> Vec<RuleWithOperations> {
    vec![
        rule("", &["replicationcontrollers", "podtemplates"], WRITTEN),
        rule(
            "apps",
            &["deployments", "replicasets", "statefulsets", "daemonsets"],
            WRITTEN,
        ),
        rule("batch", &["jobs", "cronjobs"], WRITTEN),
    ]
}

/// What `linux-pods` matches: pods, which placement keeps off Windows nodes, and DaemonSets, whose pods only
/// the template can keep off.
fn linux_pods_rules(phase: WebhookPhase) -> Vec<RuleWithOperations> {
    let pods = rule("", &["pods"], &["CREATE"]);
    match phase {
        WebhookPhase::Mutate => vec![pods],
        WebhookPhase::Validate => vec![pods, rule("apps", &["daemonsets"], WRITTEN)],
    }
}

/// What `custom-resources` matches: the built-in custom resources, whether the cluster has them or not, and the configured
/// ones. A rule for a resource that the cluster does not have matches nothing.
fn custom_resource_rules(configured: &[ConfiguredKind]) -> Vec<RuleWithOperations> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for custom in &CUSTOM_WORKLOADS {
        match groups.iter_mut().find(|(group, _)| *group == custom.group) {
            None => groups.push((custom.group, vec![custom.resource])),
            Some((_, resources)) => resources.push(custom.resource),
        }
    }
    let configured = configured
        .iter()
        .map(|kind| (kind.group(), vec![kind.resource()]));
    let rules = groups
        .into_iter()
        .chain(configured)
        .map(|(group, resources)| RuleWithOperations {
            // All versions of these have the same layout, and which of them a cluster serves is unknown here.
            api_versions: Some(vec!["*".to_owned()]),
            ..rule(group, &resources, WRITTEN)
        });
    rules.collect()
}

fn rule(group: &str, resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec!["v1".to_owned()]),
        operations: Some(strings(operations)),
        resources: Some(strings(resources)),
        scope: Some("Namespaced".to_owned()),
    }
}
