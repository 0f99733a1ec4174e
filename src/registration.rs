//! Builds the webhook configurations with which the API server calls Transom; does not apply them.
//!
//! The chart, `transom generate webhooks` and the tests all use them.

pub mod configurations;
mod match_conditions;
pub mod names;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use self::configurations::Configurations;
pub use self::match_conditions::{LONGEST_POOL_LABEL, MOST_POOL_LABELS};
use self::match_conditions::{MatchScope, conditions};
use crate::engine::namespace_labels::IGNORE_LABEL;
use crate::model::node::PoolLabel;
use crate::model::registry_patterns::RegistryPatterns;
use crate::model::string_enum::string_enum;
use crate::model::workload::configured::ConfiguredKind;
use crate::model::workload::custom::CUSTOM_WORKLOADS;

/// Namespaces that are always excluded, in addition to Transom's own: a cluster cannot start without them.
pub const NEVER: [&str; 3] = ["kube-system", "kube-node-lease", "kube-public"];

/// Namespaces that are excluded by default: network plugins and policy engines that nodes depend on.
pub const BY_DEFAULT: [&str; 3] = ["calico-system", "tigera-operator", "gatekeeper-system"];

/// The label of namespaces that AKS manages.
const MANAGED_BY: &str = "kubernetes.azure.com/managedby";

/// The labels that exclude a namespace, with their values.
const LEFT_OUT: [(&str, &str); 2] = [
    // AKS excludes it from every webhook. Its other label, `control-plane`, is in the values file for AKS only, because
    // kubebuilder puts it on ordinary namespaces.
    (MANAGED_BY, "aks"),
    (IGNORE_LABEL, "true"),
];

/// The maximum time that the API server may wait for Transom. Clients of the API server give up after a few
/// seconds.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The API server calls mutating configurations in the order of their names, and Transom should run after the
/// others.
const LATE: &str = "zz-";

/// How the API server reaches Transom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebhookEndpoint {
    /// A Service, at port 443.
    Service {
        /// Its name.
        name: String,
        /// Its namespace, which is Transom's own and is excluded.
        namespace: String,
    },
    /// `https://host:port`, for a server outside the cluster.
    Url(String),
}

string_enum! {
    /// What happens to a request if Transom cannot be reached.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum FailurePolicy {
        /// It is allowed.
        #[default]
        Ignore = "Ignore",
        /// It is denied.
        Fail = "Fail",
    }
}

/// The options of a registration.
#[derive(Clone, PartialEq, Debug)]
pub struct RegistrationOptions {
    /// The name of the installation; both configurations have this name with the prefix `zz-`.
    pub name: String,
    /// The address of Transom.
    pub endpoint: WebhookEndpoint,
    /// The CAs of its certificate, in PEM; `None` if the controller writes them.
    pub ca_bundle: Option<Vec<u8>>,
    /// The failure policy in `/validate` for pods that are certainly for Windows. Everything else fails open.
    pub validate_failure_policy: FailurePolicy,
    /// The timeout of the API server, rounded to whole seconds, between one and [`LONGEST_TIMEOUT`].
    pub timeout: Duration,
    /// Namespaces to exclude, in addition to [`NEVER`] and Transom's own.
    pub excluded_namespaces: Vec<String>,
    /// Node pool labels that mean Windows, as in `poolLabels` of node policies, including well-known ones.
    pub pool_labels: Vec<PoolLabel>,
    /// Custom resources that describe pods, as in `podTemplates` of pod policies, in addition to the built-in ones.
    pub pod_templates: Vec<ConfiguredKind>,
    /// The namespaces whose Linux pods are kept off Windows nodes. The API server also sends their pods that
    /// could run there.
    pub linux_pods: Option<LabelSelector>,
    /// The namespaces with a default operating system. The API server also sends their pods without evidence.
    pub default_os: Option<LabelSelector>,
    /// The namespaces with a default node selector. The API server also sends their templates without evidence.
    pub namespace_selector: Option<LabelSelector>,
    /// The registries that Transom may ask about images. The API server also sends objects without evidence whose images
    /// are there. Empty: no such entries.
    pub image_registries: RegistryPatterns,
}

impl Default for RegistrationOptions {
    fn default() -> Self {
        RegistrationOptions {
            name: "transom".to_owned(),
            endpoint: WebhookEndpoint::Service {
                name: "transom".to_owned(),
                namespace: "transom-system".to_owned(),
            },
            ca_bundle: None,
            validate_failure_policy: FailurePolicy::Ignore,
            timeout: LONGEST_TIMEOUT,
            excluded_namespaces: BY_DEFAULT.map(str::to_owned).into(),
            pool_labels: PoolLabel::well_known(),
            pod_templates: Vec::new(),
            linux_pods: None,
            default_os: None,
            namespace_selector: None,
            image_registries: RegistryPatterns::default(),
        }
    }
}

/// The name of both configurations of an installation.
pub fn configuration_name(installation: &str) -> String {
    format!("{LATE}{installation}")
}

/// Why the API server does not send the objects of a namespace for review.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReviewed {
    /// The namespace is excluded by name.
    ByName,
    /// A label excludes the namespace.
    ByLabel(&'static str),
    /// No webhook is registered for the namespace.
    NotRegistered,
}

impl NotReviewed {
    /// The reason as text, to follow "admission does not review it:".
    pub fn words(&self, namespace: &str) -> String {
        match self {
            NotReviewed::ByName => format!("the namespace {namespace} is excluded by name"),
            NotReviewed::ByLabel(label) => format!("the label {label} excludes the namespace {namespace}"),
            NotReviewed::NotRegistered => {
                format!("no webhook of Transom is registered for the namespace {namespace}")
            }
        }
    }
}

/// Why the API server does not send the objects of a namespace with these labels for review; `None` if it does.
/// `registered`: the stored webhook configurations; `None` assumes the ones that Transom registers.
pub fn not_reviewed(
    namespace: &str,
    labels: &BTreeMap<String, String>,
    excluded: &[String],
    registered: Option<&Configurations>,
) -> Option<NotReviewed> {
    let calls = || registered.is_none_or(|registered| registered.calls_in(labels));
    left_out(namespace, labels, excluded).or_else(|| (!calls()).then_some(NotReviewed::NotRegistered))
}

fn left_out(namespace: &str, labels: &BTreeMap<String, String>, excluded: &[String]) -> Option<NotReviewed> {
    if is_left_out_by_name(namespace, excluded) {
        return Some(NotReviewed::ByName);
    }
    left_out_by(labels).next().map(NotReviewed::ByLabel)
}

/// Whether the webhooks skip a namespace: by its name, by an entry of `excluded` (which contains Transom's
/// own), or by a label. Equals the `namespaceSelector` of every entry, which options may narrow further.
pub fn is_left_out(namespace: &str, labels: &BTreeMap<String, String>, excluded: &[String]) -> bool {
    left_out(namespace, labels, excluded).is_some()
}

/// Whether the webhooks skip a namespace regardless of its labels.
pub fn is_left_out_by_name(namespace: &str, excluded: &[String]) -> bool {
    NEVER.contains(&namespace) || excluded.iter().any(|other| other == namespace)
}

/// The namespaces that the chart excludes by name, and Transom's own.
pub fn excluded_by_default(own: &str) -> Vec<String> {
    BY_DEFAULT.into_iter().chain([own]).map(str::to_owned).collect()
}

/// Those of these labels that exclude their namespace.
pub fn left_out_by(labels: &BTreeMap<String, String>) -> impl Iterator<Item = &'static str> {
    let stands = |(label, value): &(&str, &str)| labels.get(*label).is_some_and(|stands| stands == value);
    LEFT_OUT.into_iter().filter(stands).map(|(label, _)| label)
}

/// Every label that can exclude a namespace.
pub fn leaving_out() -> impl Iterator<Item = &'static str> {
    LEFT_OUT.into_iter().map(|(label, _)| label)
}

/// The configuration of `/mutate`. All its entries fail open.
pub fn mutating(options: &RegistrationOptions) -> MutatingWebhookConfiguration {
    let entries = options
        .entries(WebhookPhase::Mutate)
        .into_iter()
        .map(|entry| MutatingWebhook {
            admission_review_versions: versions(),
            client_config: options.client(path(WebhookPhase::Mutate, entry.match_scope)),
            failure_policy: Some(FailurePolicy::Ignore.as_str().to_owned()),
            match_conditions: Some(options.conditions(entry.match_scope)),
            match_policy: Some("Equivalent".to_owned()),
            name: entry.name.to_owned(),
            namespace_selector: Some(options.namespaces(entry.only_in)),
            object_selector: None,
            reinvocation_policy: Some("IfNeeded".to_owned()),
            rules: Some(entry.rules),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(options.seconds()),
        });
    MutatingWebhookConfiguration {
        metadata: options.metadata(),
        webhooks: Some(entries.collect()),
    }
}

/// The configuration of `/validate`. Only `certain` can fail closed.
pub fn validating(options: &RegistrationOptions) -> ValidatingWebhookConfiguration {
    let entries = options.entries(WebhookPhase::Validate).into_iter().map(|entry| {
        let failure_policy = match entry.match_scope {
            MatchScope::Certain => FailurePolicy::Fail,
            _ => FailurePolicy::Ignore,
        };
        ValidatingWebhook {
            admission_review_versions: versions(),
            client_config: options.client(path(WebhookPhase::Validate, entry.match_scope)),
            failure_policy: Some(failure_policy.as_str().to_owned()),
            match_conditions: Some(options.conditions(entry.match_scope)),
            match_policy: Some("Equivalent".to_owned()),
            name: entry.name.to_owned(),
            namespace_selector: Some(options.namespaces(entry.only_in)),
            // Authors choose the labels of objects, so a label must not bypass the webhooks.
            object_selector: None,
            rules: Some(entry.rules),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(options.seconds()),
        }
    });
    ValidatingWebhookConfiguration {
        metadata: options.metadata(),
        webhooks: Some(entries.collect()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WebhookPhase {
    Mutate,
    Validate,
}

/// The URL path of an entry. Entries that select objects without evidence of Windows have their own path: a
/// review that is too large to be read is allowed there, and denied elsewhere.
fn path(phase: WebhookPhase, match_scope: MatchScope) -> &'static str {
    match (phase, match_scope) {
        (WebhookPhase::Mutate, MatchScope::Unsaid | MatchScope::LinuxPods | MatchScope::Images) => {
            "/mutate/no-sign"
        }
        (WebhookPhase::Mutate, _) => "/mutate",
        (WebhookPhase::Validate, MatchScope::Unsaid | MatchScope::LinuxPods | MatchScope::Images) => {
            "/validate/no-sign"
        }
        (WebhookPhase::Validate, _) => "/validate",
    }
}

struct WebhookEntry<'o> {
    name: &'static str,
    match_scope: MatchScope,
    rules: Vec<RuleWithOperations>,
    /// Narrows the entry in addition to the exclusions.
    only_in: Option<&'o LabelSelector>,
}

impl RegistrationOptions {
    /// One entry for all evidence of Windows, if all of it has the same failure policy: the API server
    /// converts an object for CEL once per entry.
    fn entries(&self, phase: WebhookPhase) -> Vec<WebhookEntry<'_>> {
        let [sign, default_os, linux_pods, images] = match phase {
            WebhookPhase::Mutate => [
                names::MUTATE,
                names::DEFAULT_OS_MUTATE,
                names::LINUX_PODS_MUTATE,
                names::IMAGES_MUTATE,
            ],
            WebhookPhase::Validate => [
                names::VALIDATE,
                names::DEFAULT_OS_VALIDATE,
                names::LINUX_PODS_VALIDATE,
                names::IMAGES_VALIDATE,
            ],
        };
        let entry = |name, match_scope, only_in| WebhookEntry {
            name,
            match_scope,
            rules: match match_scope {
                MatchScope::LinuxPods => linux_pods_rules(phase),
                MatchScope::CustomResources => custom_resource_rules(&self.pod_templates),
                _ if name == names::NAMESPACE_SELECTOR_VALIDATE => template_rules(),
                _ => rules(phase),
            },
            only_in,
        };
        let mut entries = match (phase, self.validate_failure_policy) {
            (WebhookPhase::Validate, FailurePolicy::Fail) => vec![
                entry(names::CERTAIN_VALIDATE, MatchScope::Certain, None),
                entry(sign, MatchScope::Rest, None),
            ],
            _ => vec![entry(sign, MatchScope::Sign, None)],
        };
        // The API server does not validate the pods of custom resources, so there is nothing that `/mutate` must report
        // first.
        if phase == WebhookPhase::Validate {
            let name = names::CUSTOM_RESOURCES_VALIDATE;
            entries.push(entry(name, MatchScope::CustomResources, None));
        }
        if let Some(selector) = &self.default_os {
            entries.push(entry(default_os, MatchScope::Unsaid, Some(selector)));
        }
        // The pods carry the selector when webhooks are called, so that they have a sign; and the API server refuses nothing
        // of a template that `/mutate` must report first.
        if let (WebhookPhase::Validate, Some(selector)) = (phase, &self.namespace_selector) {
            let name = names::NAMESPACE_SELECTOR_VALIDATE;
            entries.push(entry(name, MatchScope::Unsaid, Some(selector)));
        }
        if let Some(selector) = &self.linux_pods {
            entries.push(entry(linux_pods, MatchScope::LinuxPods, Some(selector)));
        }
        // For every namespace: the other two rely on that. It also matches workloads, so that a look-up begins before their
        // first pod.
        if !self.image_registries.is_empty() {
            entries.push(entry(images, MatchScope::Images, None));
        }
        entries
    }

    fn conditions(&self, match_scope: MatchScope) -> Vec<MatchCondition> {
        conditions(
            match_scope,
            &self.pool_labels,
            &self.pod_templates,
            &self.image_registries,
        )
    }

    fn metadata(&self) -> ObjectMeta {
        let map = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
        ObjectMeta {
            name: Some(configuration_name(&self.name)),
            labels: map("app.kubernetes.io/name", "transom"),
            // Without it, AKS rewrites the selectors repeatedly.
            annotations: map("admissions.enforcer/disabled", "true"),
            ..ObjectMeta::default()
        }
    }

    fn client(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = self.ca_bundle.clone().map(ByteString);
        match &self.endpoint {
            WebhookEndpoint::Service { name, namespace } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(443),
                }),
                url: None,
            },
            WebhookEndpoint::Url(url) => WebhookClientConfig {
                ca_bundle,
                service: None,
                url: Some(format!("{}{path}", url.trim_end_matches('/'))),
            },
        }
    }

    fn seconds(&self) -> i32 {
        let longest = LONGEST_TIMEOUT.as_secs();
        i32::try_from(self.timeout.as_secs().clamp(1, longest)).unwrap_or(1)
    }

    /// The namespace selector of an entry: excludes namespaces that a cluster needs to start, and those that
    /// have opted out.
    fn namespaces(&self, only_in: Option<&LabelSelector>) -> LabelSelector {
        let mut left_out: Vec<&str> = NEVER.into();
        if let WebhookEndpoint::Service { namespace, .. } = &self.endpoint {
            left_out.push(namespace);
        }
        left_out.extend(self.excluded_namespaces.iter().map(String::as_str));
        let mut seen = std::collections::BTreeSet::new();
        left_out.retain(|namespace| seen.insert(*namespace));
        let mut expressions = vec![requirement("kubernetes.io/metadata.name", "NotIn", &left_out)];
        expressions.extend(LEFT_OUT.map(|(label, value)| requirement(label, "NotIn", &[value])));
        let only_in = only_in.cloned().unwrap_or_default();
        expressions.extend(only_in.match_expressions.unwrap_or_default());
        LabelSelector {
            match_expressions: Some(expressions),
            match_labels: only_in.match_labels,
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
        WebhookPhase::Validate => vec![pods, rule("apps", &["daemonsets"], &["CREATE", "UPDATE"])],
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
            ..rule(group, &resources, &["CREATE", "UPDATE"])
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

fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then(|| strings(values)),
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn versions() -> Vec<String> {
    vec!["v1".to_owned()]
}

#[cfg(test)]
mod tests;
