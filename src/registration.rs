//! Builds the webhook configurations with which the API server calls Transom; does not apply them.
//!
//! The chart, `transom generate webhooks` and the tests all use them.

pub mod configurations;
mod entries;
mod match_conditions;
pub mod names;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use self::configurations::Configurations;
use self::entries::{ENTRIES, EntryKind, WebhookPhase};
pub use self::match_conditions::LONGEST_NODE_LABEL;
use self::match_conditions::{MatchScope, conditions};
pub use crate::engine::namespace_exclusion::{
    BY_DEFAULT, NEVER, NotReviewed, excluded_by_default, is_left_out, is_left_out_by_name, leaving_out,
    left_out_by,
};
use crate::engine::namespace_exclusion::{LEFT_OUT, left_out};
use crate::model::nodes::node::NodeLabel;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::registry_patterns::RegistryPatterns;

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
    Service(ServiceName),
    /// `https://host:port`, for a server outside the cluster.
    Url(String),
}

/// The Service of the webhook, written as `NAME.NAMESPACE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceName {
    /// Its name.
    pub name: String,
    /// Its namespace, which is Transom's own and is excluded.
    pub namespace: String,
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('.') {
            Some((name, namespace))
                if !name.is_empty() && !namespace.is_empty() && !namespace.contains('.') =>
            {
                Ok(ServiceName {
                    name: name.to_owned(),
                    namespace: namespace.to_owned(),
                })
            }
            _ => Err("write the Service and its namespace, as in transom.transom-system".to_owned()),
        }
    }
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
    /// Node labels that mean Windows, including well-known ones.
    pub node_labels: Vec<NodeLabel>,
    /// Custom resources that describe pods, in addition to the built-in ones.
    pub pod_templates: Vec<ConfiguredKind>,
    /// The namespaces that may have a default node selector. The API server also sends their templates without evidence.
    pub default_node_selector: Option<LabelSelector>,
    /// The hash of the file of facts about the cluster from which the three options above come. With a Service, it is the
    /// file in the ConfigMap `NAME-cluster` that the chart makes in its namespace.
    pub cluster_config_hash: Option<String>,
    /// The namespaces whose Linux pods are kept off Windows nodes. The API server also sends their pods that
    /// could run there.
    pub linux_pods: Option<LabelSelector>,
    /// The namespaces with a default operating system. The API server also sends their pods without evidence.
    pub default_os: Option<LabelSelector>,
    /// The registries that Transom may ask about images. The API server also sends objects without evidence whose images
    /// are there. Empty: no such entries.
    pub image_registries: RegistryPatterns,
}

impl Default for RegistrationOptions {
    fn default() -> Self {
        RegistrationOptions {
            name: "transom".to_owned(),
            endpoint: WebhookEndpoint::Service(ServiceName {
                name: "transom".to_owned(),
                namespace: "transom-system".to_owned(),
            }),
            ca_bundle: None,
            validate_failure_policy: FailurePolicy::Ignore,
            timeout: LONGEST_TIMEOUT,
            excluded_namespaces: BY_DEFAULT.map(str::to_owned).into(),
            node_labels: NodeLabel::well_known(),
            pod_templates: Vec::new(),
            linux_pods: None,
            default_os: None,
            default_node_selector: None,
            cluster_config_hash: None,
            image_registries: RegistryPatterns::default(),
        }
    }
}

/// The name of both configurations of an installation.
pub fn configuration_name(installation: &str) -> String {
    format!("{LATE}{installation}")
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

/// The configuration of `/mutate`. All its entries fail open.
pub fn mutating(options: &RegistrationOptions) -> MutatingWebhookConfiguration {
    let entries = options
        .webhooks(WebhookPhase::Mutate)
        .map(|hook| MutatingWebhook {
            admission_review_versions: hook.admission_review_versions,
            client_config: hook.client_config,
            failure_policy: hook.failure_policy,
            match_conditions: hook.match_conditions,
            match_policy: hook.match_policy,
            name: hook.name,
            namespace_selector: hook.namespace_selector,
            object_selector: hook.object_selector,
            reinvocation_policy: Some("IfNeeded".to_owned()),
            rules: hook.rules,
            side_effects: hook.side_effects,
            timeout_seconds: hook.timeout_seconds,
        });
    MutatingWebhookConfiguration {
        metadata: options.metadata(),
        webhooks: Some(entries.collect()),
    }
}

/// The configuration of `/validate`. Only `certain` can fail closed.
pub fn validating(options: &RegistrationOptions) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: options.metadata(),
        webhooks: Some(options.webhooks(WebhookPhase::Validate).collect()),
    }
}

impl RegistrationOptions {
    /// The entries of a phase. The fields of both kinds of webhook are the same, except one.
    fn webhooks(&self, phase: WebhookPhase) -> impl Iterator<Item = ValidatingWebhook> {
        let kinds = ENTRIES.iter().filter(move |kind| kind.phase == phase);
        kinds.filter_map(|kind| self.webhook(kind))
    }

    fn webhook(&self, kind: &EntryKind) -> Option<ValidatingWebhook> {
        let (match_scope, only_in) = self.scope(kind)?;
        let failure_policy = match match_scope {
            MatchScope::Certain => FailurePolicy::Fail,
            _ => FailurePolicy::Ignore,
        };
        Some(ValidatingWebhook {
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client(kind.path()),
            failure_policy: Some(failure_policy.as_str().to_owned()),
            match_conditions: Some(self.conditions(match_scope)),
            match_policy: Some("Equivalent".to_owned()),
            name: kind.name.to_owned(),
            namespace_selector: Some(self.namespaces(only_in)),
            // Authors choose the labels of objects, so a label must not bypass the webhooks.
            object_selector: None,
            rules: Some(kind.rules(&self.pod_templates)),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(self.seconds()),
        })
    }

    /// What an entry matches, and the namespaces to which it is limited in addition to the exclusions; `None` if these options
    /// do not register it. One entry is for all evidence of Windows, if all of it has the same failure policy: the API server
    /// converts an object for CEL once per entry.
    fn scope(&self, kind: &EntryKind) -> Option<(MatchScope, Option<&LabelSelector>)> {
        let fails_closed =
            kind.phase == WebhookPhase::Validate && self.validate_failure_policy == FailurePolicy::Fail;
        let only_in = match kind.scope {
            MatchScope::Sign if fails_closed => return Some((MatchScope::Rest, None)),
            MatchScope::Certain if !fails_closed => return None,
            MatchScope::Images if self.image_registries.is_empty() => return None,
            MatchScope::Unsaid => Some(self.default_os.as_ref()?),
            MatchScope::UnsaidTemplates => Some(self.default_node_selector.as_ref()?),
            MatchScope::LinuxPods => Some(self.linux_pods.as_ref()?),
            _ => None,
        };
        Some((kind.scope, only_in))
    }

    fn conditions(&self, match_scope: MatchScope) -> Vec<MatchCondition> {
        conditions(
            match_scope,
            &self.node_labels,
            &self.pod_templates,
            &self.image_registries,
        )
    }

    fn metadata(&self) -> ObjectMeta {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        // Without it, AKS rewrites the selectors repeatedly.
        let mut annotations = map("admissions.enforcer/disabled", "true");
        if let Some(hash) = &self.cluster_config_hash {
            annotations.extend(map(names::CLUSTER_CONFIG_HASH, hash));
            if let WebhookEndpoint::Service(service) = &self.endpoint {
                let config_map = format!("{}/{}-cluster", service.namespace, self.name);
                annotations.extend(map(names::CLUSTER_CONFIG_MAP, &config_map));
            }
        }
        ObjectMeta {
            name: Some(configuration_name(&self.name)),
            labels: Some(map("app.kubernetes.io/name", "transom")),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }
    }

    fn client(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = self.ca_bundle.clone().map(ByteString);
        match &self.endpoint {
            WebhookEndpoint::Service(service) => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: service.name.clone(),
                    namespace: service.namespace.clone(),
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
        if let WebhookEndpoint::Service(service) = &self.endpoint {
            left_out.push(&service.namespace);
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

#[cfg(test)]
mod tests;
