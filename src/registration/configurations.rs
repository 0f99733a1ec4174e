//! The stored webhook configurations, and the policy settings that have no effect because the API server does
//! not send the objects. The controller reads the configurations.

mod drift;
mod images;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use self::drift::WebhookCall;
use super::match_conditions::{REST, matches_pool_label, reads_pod_template};
use super::names;
use crate::engine::policy_set::StoredPolicy;
use crate::model::label_selector::{LabelExpression, LabelOperator, LabelSelector};
use crate::model::node::{PoolLabel, PoolLabelValue};
use crate::model::policy::{
    Action, IgnoredFields, ImageEvidence, LinuxPods, PlacementMode, PodNodeSelector, Policy,
};
use crate::model::registry_patterns::RegistryPatterns;
use crate::model::text::list;
use crate::model::workload::configured::ConfiguredKind;

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

/// One configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// Its kind and name, for display.
    pub title: String,
    /// Its entries; empty if the object does not exist.
    pub entries: Vec<RegisteredEntry>,
}

/// One entry: what it matches, and how it is called.
#[derive(Clone, PartialEq, Debug)]
pub struct RegisteredEntry {
    name: String,
    namespaces: LabelSelector,
    conditions: Vec<MatchCondition>,
    call: WebhookCall,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StoredWebhook {
    name: String,
    namespace_selector: Option<LabelSelector>,
    match_conditions: Option<Vec<MatchCondition>>,
    #[serde(flatten)]
    call: WebhookCall,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Default)]
#[serde(default)]
struct MatchCondition {
    name: String,
    expression: String,
}

impl RegisteredEntry {
    /// Reads one item of `webhooks`; `None` if it is invalid.
    fn read(webhook: &Value) -> Option<Self> {
        let webhook = StoredWebhook::deserialize(webhook).ok()?;
        Some(RegisteredEntry {
            name: webhook.name,
            namespaces: webhook.namespace_selector.unwrap_or_default(),
            conditions: webhook.match_conditions.unwrap_or_default(),
            call: webhook.call,
        })
    }

    /// An entry without conditions matches everything.
    fn matches_pool_label(&self, label: &PoolLabel) -> bool {
        let mut conditions = self.conditions.iter();
        self.conditions.is_empty()
            || conditions.any(|condition| matches_pool_label(&condition.expression, label))
    }

    /// Whether a rule matches a resource.
    fn matches_resource(&self, group: &str, resource: &str) -> bool {
        self.call.matches_resource(group, resource)
    }

    /// Whether its conditions read the path of a kind; an entry without conditions matches everything.
    fn reads_pod_template(&self, kind: ConfiguredKind) -> bool {
        let mut conditions = self.conditions.iter();
        self.conditions.is_empty()
            || conditions.any(|condition| reads_pod_template(&condition.expression, kind))
    }

    /// Whether it leaves some of the Windows pods to `certain`.
    fn excludes_certain(&self) -> bool {
        (self.conditions.iter()).any(|condition| condition.name == REST)
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
        }
    }

    fn entry(&self, name: &str) -> Option<&RegisteredEntry> {
        self.entries.iter().find(|entry| entry.name == name)
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
    /// In `/mutate`, if it is registered there too.
    of_mutate: Option<&'static str>,
    /// In `/validate`.
    of_validate: &'static str,
    /// The policy field and its value.
    setting: String,
    /// What the setting has no effect on without the entry; empty: on anything.
    without: &'static str,
    /// Whether it is for every namespace of the policy.
    is_for_all: bool,
    value: &'static str,
    flag: &'static str,
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
        pool_labels: &[PoolLabel],
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
        gaps.extend(self.unmatched_pool_labels(pool_labels));
        gaps.extend(self.unmatched_pod_templates(policy));
        gaps
    }

    /// The problems of the registration that do not depend on a policy.
    pub fn problems(&self) -> Vec<CoverageGap> {
        let drift = self.drift();
        let differs = (!drift.is_empty()).then(|| CoverageGap {
            reason: "WebhookConfigurationDrifted",
            message: format!(
                "the webhook configurations are not as Transom registers them: {}; run helm upgrade again, or transom generate \
                 webhooks | kubectl apply --server-side --force-conflicts -f -",
                drift.join("; ")
            ),
        });
        differs.into_iter().collect()
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
        entry: &OptionalEntry,
        selector: &LabelSelector,
        counts_in: impl Iterator<Item = (&'n str, &'n BTreeMap<String, String>)>,
    ) -> Option<CoverageGap> {
        let OptionalEntry {
            of_mutate,
            of_validate,
            setting,
            without,
            is_for_all,
            value,
            flag,
        } = entry;
        let of_validate = (&self.validating, *of_validate, names::VALIDATE);
        let of_mutate = of_mutate.map(|name| (&self.mutating, name, names::MUTATE));
        let phases: Vec<_> = of_mutate.into_iter().chain([of_validate]).collect();
        let named: Vec<&str> = phases.iter().map(|(_, name, _)| *name).collect();
        let entries = phases
            .iter()
            .map(|(configuration, name, sign)| (configuration.entry(name), configuration.entry(sign)));
        let entries: Vec<_> = entries.collect();
        let remedy = |selector: &LabelSelector| {
            format!(
                "set the chart's {value}: {}, or add to transom generate webhooks: {flag} \'{}\'",
                json!({"enabled": true, "namespaceSelector": selector_value(selector)}),
                selector_flag(selector)
            )
        };
        if entries.iter().any(|(entry, _)| entry.is_none()) {
            return Some(CoverageGap {
                reason: "WebhookEntryMissing",
                message: format!(
                    "{setting} has no effect{without}: the webhook configurations lack the entry {}; {}",
                    named.join(" or "),
                    remedy(selector)
                ),
            });
        }
        if !is_for_all {
            return None;
        }
        // Namespaces that the entry for any evidence excludes are excluded on purpose.
        let is_called = |labels| {
            entries.iter().all(|(entry, sign)| {
                let selects = |entry: Option<&RegisteredEntry>| {
                    entry.is_some_and(|entry| entry.namespaces.selects(labels))
                };
                selects(*entry) || !selects(*sign)
            })
        };
        let left_out: Vec<&str> = counts_in
            .filter(|(_, labels)| !is_called(labels))
            .map(|(name, _)| name)
            .collect();
        (!left_out.is_empty()).then(|| CoverageGap {
            reason: "NamespacesNotSelected",
            message: format!(
                "{setting} has no effect in {}: {} do not both select them; {}",
                list(&left_out, NAMED),
                named.join(" and "),
                remedy(&LabelSelector::default())
            ),
        })
    }

    /// The `podTemplates` of a policy that no rule matches, or whose path the condition does not read. That the entry of the
    /// built-in kinds is missing is no gap: charts before it have none, and their pods are evaluated.
    fn unmatched_pod_templates(&self, policy: &Policy) -> Option<CoverageGap> {
        let entry = self.validating.entry(names::CUSTOM_RESOURCES_VALIDATE);
        let is_matched = |kind: &ConfiguredKind| {
            entry.is_some_and(|entry| {
                entry.matches_resource(kind.group(), kind.resource()) && entry.reads_pod_template(*kind)
            })
        };
        let unmatched: Vec<ConfiguredKind> = (policy.pod_templates.iter().copied())
            .filter(|kind| !is_matched(kind))
            .take(NAMED)
            .collect();
        if unmatched.is_empty() {
            return None;
        }
        let value = |kind: &ConfiguredKind| {
            let (group, resource) = (kind.group(), kind.resource());
            json!({"group": group, "kind": kind.kind(), "path": kind.path().join("."), "resource": resource})
        };
        let values: Vec<Value> = unmatched.iter().map(value).collect();
        let flags: Vec<String> = (unmatched.iter())
            .map(|kind| {
                let (group, path) = (kind.group(), kind.path().join("."));
                format!("--pod-template \'{group}/{}={path}\'", kind.kind())
            })
            .collect();
        Some(CoverageGap {
            reason: "PodTemplatesNotRegistered",
            message: format!(
                "the webhook configurations do not know all podTemplates of the policy with their paths, so that Transom is \
                 not called for these kinds; add to the chart's webhooks.podTemplates: {}, or to transom generate webhooks: {}",
                Value::from(values),
                flags.join(" ")
            ),
        })
    }

    /// The pool labels that no condition matches.
    fn unmatched_pool_labels(&self, pool_labels: &[PoolLabel]) -> Option<CoverageGap> {
        let matches = |label: &PoolLabel| {
            self.phases().iter().all(|(configuration, sign)| {
                let names = [*sign, names::CERTAIN_VALIDATE, names::CUSTOM_RESOURCES_VALIDATE];
                let mut entries = names.iter().filter_map(|name| configuration.entry(name));
                entries.all(|entry| entry.matches_pool_label(label))
            })
        };
        let unmatched_pool_labels: Vec<&PoolLabel> = (pool_labels.iter())
            .filter(|label| !matches(label))
            .take(NAMED)
            .collect();
        if unmatched_pool_labels.is_empty() {
            return None;
        }
        let values: Vec<Value> = (unmatched_pool_labels.iter())
            .map(|label| match &label.value {
                PoolLabelValue::Exact(value) => json!({"key": label.key, "values": [value]}),
                PoolLabelValue::Prefix(prefix) => json!({"key": label.key, "valuePrefix": prefix}),
            })
            .collect();
        let flags: Vec<String> = (unmatched_pool_labels.iter())
            .map(|label| format!("--pool-label \'{label}\'"))
            .collect();
        Some(CoverageGap {
            reason: "PoolLabelsNotRegistered",
            message: format!(
                "the webhook configurations do not contain all poolLabels of the node policies, so Transom is not called for \
                 pods that are recognized only by them; add to the chart's webhooks.poolLabels: {}, or to transom generate webhooks: {}",
                Value::from(values),
                flags.join(" ")
            ),
        })
    }
}

fn optional(policy: &Policy) -> Vec<OptionalEntry> {
    let mut entries = Vec::new();
    if policy.linux_pods != LinuxPods::Disabled {
        entries.push(OptionalEntry {
            of_mutate: Some(names::LINUX_PODS_MUTATE),
            of_validate: names::LINUX_PODS_VALIDATE,
            without: "",
            is_for_all: true,
            setting: format!("placement.linuxPods: {}", policy.linux_pods),
            value: "webhooks.linuxPods",
            flag: "--linux-pods-selector",
        });
    }
    if let Some(os) = policy.namespace_default_os {
        entries.push(OptionalEntry {
            of_mutate: Some(names::DEFAULT_OS_MUTATE),
            of_validate: names::DEFAULT_OS_VALIDATE,
            without: "",
            is_for_all: true,
            setting: format!("evidence.namespaceDefaultOS: {os:?}"),
            value: "webhooks.defaultOS",
            flag: "--default-os-selector",
        });
    }
    let setting = if policy.pod_node_selector == PodNodeSelector::Enabled {
        Some("evidence.podNodeSelector: Enabled")
    } else {
        (!policy.default_node_selector.is_empty()).then_some("evidence.defaultNodeSelector")
    };
    if let Some(setting) = setting {
        entries.push(OptionalEntry {
            of_mutate: None,
            of_validate: names::NAMESPACE_SELECTOR_VALIDATE,
            setting: setting.to_owned(),
            without: " on templates without a sign of Windows",
            is_for_all: false,
            value: "webhooks.defaultNodeSelector",
            flag: "--node-selector-namespaces",
        });
    }
    entries
}

fn every_namespace() -> LabelExpression {
    LabelExpression {
        key: EVERY_NAMESPACE.to_owned(),
        operator: LabelOperator::Exists,
        values: Vec::new(),
    }
}

/// A selector for the chart's values, in which an empty selector has another meaning.
fn selector_value(selector: &LabelSelector) -> Value {
    let mut value = serde_json::Map::new();
    if !selector.match_labels.is_empty() {
        value.insert("matchLabels".to_owned(), json!(selector.match_labels));
    }
    let mut expressions = selector.match_expressions.clone();
    if selector.match_labels.is_empty() && expressions.is_empty() {
        expressions.push(every_namespace());
    }
    if !expressions.is_empty() {
        value.insert(
            "matchExpressions".to_owned(),
            expressions.iter().map(expression_value).collect(),
        );
    }
    Value::Object(value)
}

fn expression_value(expression: &LabelExpression) -> Value {
    let mut value = json!({"key": expression.key, "operator": expression.operator});
    if !expression.values.is_empty() {
        value["values"] = json!(expression.values);
    }
    value
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
