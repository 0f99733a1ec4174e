//! The stored webhook configurations, and the policy settings that have no effect because the API server does
//! not send the objects. The controller reads the configurations.

mod drift;
mod image_registries;

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MutatingWebhook};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::match_conditions::REST;
use super::names;
use crate::engine::policy_set::StoredPolicy;
use crate::model::cluster::policy::{Action, IgnoredFields, ImageEvidence, LinuxPods, PlacementMode, Policy};
use crate::model::objects::label_selector::{LabelExpression, LabelOperator, LabelSelector};
use crate::model::syntax::text::list;
use crate::model::windows::registry_patterns::RegistryPatterns;

/// Every namespace has this label, so a requirement that it exists selects all of them.
const EVERY_NAMESPACE: &str = "kubernetes.io/metadata.name";

/// How many namespaces a message lists.
const NAMED: usize = 10;

/// Both configurations as stored in the cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Configurations {
    /// The configuration of `/mutate`.
    pub mutating: Configuration,
    /// The configuration of `/validate`.
    pub validating: Configuration,
}

/// A stored webhook configuration, as far as Transom compares it.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// Its kind and name, for display.
    pub title: String,
    /// Its entries; empty if the object does not exist.
    pub entries: Vec<RegisteredEntry>,
    /// The hash of the facts about the cluster for which it was made, if it has the annotation.
    pub cluster_config_hash: Option<String>,
    /// The ConfigMap with these facts, as `namespace/name`, if it has the annotation.
    pub cluster_config_map: Option<String>,
}

/// One entry: what it matches, and how it is called.
#[derive(Clone, PartialEq, Debug)]
pub struct RegisteredEntry {
    namespaces: LabelSelector,
    /// The entry without its `caBundle`. An entry of `/validate` is read as this type too, which has all its fields.
    webhook: MutatingWebhook,
}

impl RegisteredEntry {
    /// Reads one item of `webhooks`; `None` if it is invalid.
    fn read(item: &Value) -> Option<Self> {
        let mut webhook = MutatingWebhook::deserialize(item).ok()?;
        // A new certificate changes nothing that is compared or evaluated.
        webhook.client_config.ca_bundle = None;
        let selector = item.get("namespaceSelector").unwrap_or(&Value::Null);
        let namespaces = Option::<LabelSelector>::deserialize(selector).ok()?;
        Some(RegisteredEntry {
            namespaces: namespaces.unwrap_or_default(),
            webhook,
        })
    }

    fn conditions(&self) -> &[MatchCondition] {
        self.webhook.match_conditions.as_deref().unwrap_or_default()
    }

    /// Whether a condition is like this; an entry without conditions matches everything.
    fn has_condition(&self, is_like: impl Fn(&str) -> bool) -> bool {
        let mut conditions = self.conditions().iter();
        self.conditions().is_empty() || conditions.any(|condition| is_like(&condition.expression))
    }

    /// Whether it leaves some of the Windows pods to `certain`.
    fn excludes_certain(&self) -> bool {
        (self.conditions().iter()).any(|condition| condition.name == REST)
    }
}

impl Configuration {
    /// Reads the `webhooks` of a configuration; entries that cannot be read are skipped. `None`: the object does not
    /// exist.
    pub fn read(title: String, webhooks: Option<&Value>) -> Self {
        let webhooks = webhooks.and_then(Value::as_array).into_iter().flatten();
        Configuration {
            title,
            entries: webhooks.filter_map(RegisteredEntry::read).collect(),
            cluster_config_hash: None,
            cluster_config_map: None,
        }
    }

    /// The same with what its annotations say about the facts about the cluster.
    #[must_use]
    pub fn annotated(self, annotations: &BTreeMap<String, String>) -> Self {
        Configuration {
            cluster_config_hash: annotations.get(names::CLUSTER_CONFIG_HASH).cloned(),
            cluster_config_map: annotations.get(names::CLUSTER_CONFIG_MAP).cloned(),
            ..self
        }
    }

    fn entry(&self, name: &str) -> Option<&RegisteredEntry> {
        self.entries.iter().find(|entry| entry.webhook.name == name)
    }

    /// Whether every Windows pod is sent: by the entry of this name, alone or together with `certain`.
    fn is_complete(&self, sign: &str) -> bool {
        let sign = self.entry(sign);
        sign.is_some_and(|sign| !sign.excludes_certain() || self.entry(names::CERTAIN_VALIDATE).is_some())
    }
}

/// A policy setting that has no effect, because the API server does not send the objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoverageGap {
    /// The reason, as one word.
    pub reason: &'static str,
    /// What is missing, and how to fix it.
    pub message: String,
}

/// An entry that is registered only on request.
struct OptionalEntry {
    of_mutate: &'static str,
    of_validate: &'static str,
    /// The policy field and its value.
    setting: String,
    value: &'static str,
    flag: &'static str,
}

/// An optional entry as it is registered, next to the entry for any evidence of Windows of its configuration.
struct OptionalCall<'c> {
    name: &'static str,
    registered: Option<&'c RegisteredEntry>,
    sign: Option<&'c RegisteredEntry>,
}

impl OptionalCall<'_> {
    /// Whether it selects a namespace with these labels. Namespaces that the entry for any evidence excludes are excluded on
    /// purpose.
    fn covers(&self, labels: &BTreeMap<String, String>) -> bool {
        let selects =
            |entry: Option<&RegisteredEntry>| entry.is_some_and(|entry| entry.namespaces.selects(labels));
        selects(self.registered) || !selects(self.sign)
    }
}

impl OptionalEntry {
    /// The entry in each configuration.
    fn entries<'c>(&self, of: &'c Configurations) -> Vec<OptionalCall<'c>> {
        let names = [self.of_mutate, self.of_validate];
        let all = of.phases().into_iter().zip(names);
        all.map(|((configuration, sign), name)| OptionalCall {
            name,
            registered: configuration.entry(name),
            sign: configuration.entry(sign),
        })
        .collect()
    }

    fn remedy(&self, selector: &LabelSelector) -> String {
        format!(
            "set the chart's {}: {}, or add to transom generate webhooks: {} \'{}\'",
            self.value,
            json!({"enabled": true, "namespaceSelector": selector_value(selector)}),
            self.flag,
            selector_flag(selector)
        )
    }
}

impl Configurations {
    /// Whether `/mutate` is called for Windows pods in a namespace with these labels.
    pub fn mutates_in(&self, labels: &BTreeMap<String, String>) -> bool {
        let sign = self.mutating.entry(names::MUTATE);
        sign.is_some_and(|entry| entry.namespaces.selects(labels))
    }

    /// Whether either endpoint is called for Windows pods in a namespace with these labels.
    pub fn calls_in(&self, labels: &BTreeMap<String, String>) -> bool {
        let sign = self.validating.entry(names::VALIDATE);
        self.mutates_in(labels) || sign.is_some_and(|entry| entry.namespaces.selects(labels))
    }

    /// The settings of a policy that have no effect. `counts_in` are the namespaces in which it applies, with
    /// their labels; `image_registries` are the registries that this process may ask.
    pub fn gaps<'n>(
        &self,
        stored: &StoredPolicy,
        image_registries: &RegistryPatterns,
        counts_in: &(impl Iterator<Item = (&'n str, &'n BTreeMap<String, String>)> + Clone),
    ) -> Vec<CoverageGap> {
        let policy = &stored.policy;
        let removes = policy.ignored_fields == IgnoredFields::Remove;
        if policy.validation == Action::Disabled && policy.placement == PlacementMode::Disabled && !removes {
            return Vec::new();
        }
        let without = self.phases().into_iter();
        let without = without.filter(|(configuration, sign)| !configuration.is_complete(sign));
        let without: Vec<&str> = without
            .map(|(configuration, _)| configuration.title.as_str())
            .collect();
        if !without.is_empty() {
            return vec![CoverageGap {
                reason: "WebhookConfigurationMissing",
                message: format!(
                    "no effect on new objects: there is no {}, or an entry of it is missing, so the API server does not call Transom; run helm upgrade again, or transom \
                     generate webhooks | kubectl apply --server-side -f -",
                    without.join(" and no ")
                ),
            }];
        }
        let mut gaps: Vec<CoverageGap> = optional(policy)
            .iter()
            .filter_map(|entry| self.gap(entry, &stored.namespace_selector, counts_in.clone()))
            .collect();
        if policy.image_evidence == ImageEvidence::Registry {
            gaps.extend(self.image_gap(image_registries));
        }
        gaps
    }

    /// Whether both were made for the facts about the cluster with this hash.
    pub fn is_for_cluster_config(&self, hash: Option<&str>) -> bool {
        let phases = [&self.mutating, &self.validating];
        phases.iter().all(|configuration| {
            configuration.entries.is_empty() || configuration.cluster_config_hash.as_deref() == hash
        })
    }

    /// The problems of the registration that do not depend on a policy. `hash`: of the facts about the cluster that this process
    /// uses.
    pub fn problems(&self, hash: Option<&str>) -> Vec<CoverageGap> {
        let other_facts = (!self.is_for_cluster_config(hash)).then(|| CoverageGap {
            reason: "ClusterConfigDiffers",
            message: format!(
                "the webhook configurations were made for other facts about the cluster (annotation {}) than those of \
                 --cluster-config, so the API server may not call Transom for Windows pods that only these facts show; if this \
                 lasts longer than two minutes after a change, run helm upgrade again, or transom generate webhooks \
                 --cluster-config FILE | kubectl apply --server-side -f -",
                names::CLUSTER_CONFIG_HASH
            ),
        });
        let drift = self.drift();
        let differs = (!drift.is_empty()).then(|| CoverageGap {
            reason: "WebhookConfigurationDrifted",
            message: format!(
                "the webhook configurations are not as Transom registers them: {}; run helm upgrade again, or transom generate \
                 webhooks | kubectl apply --server-side --force-conflicts -f -",
                drift.join("; ")
            ),
        });
        differs.into_iter().chain(other_facts).collect()
    }

    /// Both configurations, each with the name of its entry for any evidence of Windows.
    fn phases(&self) -> [(&Configuration, &'static str); 2] {
        [
            (&self.mutating, names::MUTATE),
            (&self.validating, names::VALIDATE),
        ]
    }

    fn gap<'n>(
        &self,
        optional: &OptionalEntry,
        selector: &LabelSelector,
        counts_in: impl Iterator<Item = (&'n str, &'n BTreeMap<String, String>)>,
    ) -> Option<CoverageGap> {
        let setting = &optional.setting;
        let entries = optional.entries(self);
        let names = |between: &str| {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
            names.join(between)
        };
        if entries.iter().any(|entry| entry.registered.is_none()) {
            return Some(CoverageGap {
                reason: "WebhookEntryMissing",
                message: format!(
                    "{setting} has no effect: the webhook configurations lack the entry {}; {}",
                    names(" or "),
                    optional.remedy(selector)
                ),
            });
        }
        let is_called = |labels| entries.iter().all(|entry| entry.covers(labels));
        let left_out: Vec<&str> = counts_in
            .filter(|(_, labels)| !is_called(labels))
            .map(|(name, _)| name)
            .collect();
        (!left_out.is_empty()).then(|| CoverageGap {
            reason: "NamespacesNotSelected",
            message: format!(
                "{setting} has no effect in {}: {} do not both select them; {}",
                list(&left_out, NAMED),
                names(" and "),
                optional.remedy(&LabelSelector::default())
            ),
        })
    }
}

fn optional(policy: &Policy) -> Vec<OptionalEntry> {
    let mut entries = Vec::new();
    if policy.linux_pods != LinuxPods::Disabled {
        entries.push(OptionalEntry {
            of_mutate: names::LINUX_PODS_MUTATE,
            of_validate: names::LINUX_PODS_VALIDATE,
            setting: format!("placement.linuxPods: {}", policy.linux_pods),
            value: "webhooks.linuxPods",
            flag: "--linux-pods-selector",
        });
    }
    if let Some(os) = policy.default_os {
        entries.push(OptionalEntry {
            of_mutate: names::DEFAULT_OS_MUTATE,
            of_validate: names::DEFAULT_OS_VALIDATE,
            setting: format!("evidence.defaultOS: {os:?}"),
            value: "webhooks.defaultOS",
            flag: "--default-os-selector",
        });
    }
    entries
}

/// A selector for the chart's values, in which an empty selector has another meaning.
fn selector_value(selector: &LabelSelector) -> Value {
    if *selector == LabelSelector::default() {
        return json!({"matchExpressions": [{"key": EVERY_NAMESPACE, "operator": LabelOperator::Exists}]});
    }
    json!(selector)
}

/// A selector for a flag, whose syntax has no `In` with several values: it then selects every namespace, and
/// the policy narrows it.
fn selector_flag(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter();
    let mut parts: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    for LabelExpression {
        key,
        operator,
        values,
    } in &selector.match_expressions
    {
        match (operator, values.as_slice()) {
            (LabelOperator::In, [value]) => parts.push(format!("{key}={value}")),
            (LabelOperator::In, _) => return EVERY_NAMESPACE.to_owned(),
            (LabelOperator::NotIn, values) => {
                parts.extend(values.iter().map(|value| format!("{key}!={value}")));
            }
            (LabelOperator::Exists, _) => parts.push(key.clone()),
            (LabelOperator::DoesNotExist, _) => parts.push(format!("!{key}")),
        }
    }
    if parts.is_empty() {
        return EVERY_NAMESPACE.to_owned();
    }
    parts.join(",")
}

#[cfg(test)]
mod tests;
