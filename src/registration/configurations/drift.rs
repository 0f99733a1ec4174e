//! How stored webhook configurations differ from those that Transom creates: what they match, the timeout,
//! and the failure policy. Pure.
//!
//! Allowed differences are ignored: Transom's address, additional excluded namespaces, pool labels, and a
//! shorter timeout.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::super::entries::{ENTRIES, EntryKind, WebhookPhase};
use super::super::match_conditions::{MatchScope, NAMES};
use super::super::{FailurePolicy, LONGEST_TIMEOUT, NEVER};
use super::{Configuration, Configurations, EVERY_NAMESPACE, RegisteredEntry};
use crate::engine::namespace_labels::IGNORE_LABEL;
use crate::model::syntax::text::list;

/// How many differences of one kind are listed.
const NAMED: usize = 6;

/// What a rule matches, as `CREATE apps/v1/deployments`, one item per combination.
fn matched(rule: &RuleWithOperations) -> Vec<String> {
    let all = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let (groups, versions) = (all(&rule.api_groups), all(&rule.api_versions));
    let (operations, resources) = (all(&rule.operations), all(&rule.resources));
    let mut matched = Vec::new();
    for operation in &operations {
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let group = if group.is_empty() { "core" } else { group };
                    matched.push(format!("{operation} {group}/{version}/{resource}"));
                }
            }
        }
    }
    matched
}

/// Whether a combination of a rule is about one custom resource: its group is a DNS name.
fn is_custom_resource(matched: &str) -> bool {
    let group_and_resource = |matched: &str| {
        let (_, matched) = matched.split_once(' ')?;
        let (group, rest) = matched.split_once('/')?;
        let (_, resource) = rest.split_once('/')?;
        let is_kubernetes = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
        Some(group.contains('.') && !is_kubernetes && !resource.contains(['*', '/']))
    };
    group_and_resource(matched).unwrap_or(false)
}

impl Configurations {
    /// How both configurations differ from what Transom registers, one sentence per entry.
    pub fn drift(&self) -> Vec<String> {
        let both = [
            (&self.mutating, WebhookPhase::Mutate),
            (&self.validating, WebhookPhase::Validate),
        ];
        both.into_iter()
            .flat_map(|(configuration, phase)| configuration.drift(phase == WebhookPhase::Mutate))
            .collect()
    }
}

impl Configuration {
    /// How one configuration differs.
    pub fn drift(&self, mutates: bool) -> Vec<String> {
        let phase = if mutates {
            WebhookPhase::Mutate
        } else {
            WebhookPhase::Validate
        };
        let of_entry = |entry: &RegisteredEntry| {
            let found = entry.drift(phase);
            (!found.is_empty()).then(|| format!("{}: {}", entry.webhook.name, found.join(", ")))
        };
        self.entries.iter().filter_map(of_entry).collect()
    }
}

impl RegisteredEntry {
    fn drift(&self, phase: WebhookPhase) -> Vec<String> {
        let mut kinds = ENTRIES.iter().filter(|kind| kind.phase == phase);
        let Some(kind) = kinds.find(|kind| kind.name == self.webhook.name) else {
            return vec!["Transom has no such entry".to_owned()];
        };
        let mut found = Vec::new();
        self.compare_rules(kind, &mut found);
        self.compare_conditions(&mut found);
        self.compare_selectors(&mut found);
        self.compare_failures(kind, &mut found);
        self.compare_call(kind, &mut found);
        found
    }

    /// Compares what happens if Transom does not answer.
    fn compare_failures(&self, kind: &EntryKind, found: &mut Vec<String>) {
        let timeout = self.webhook.timeout_seconds.unwrap_or(10);
        let longest = LONGEST_TIMEOUT.as_secs();
        if u64::from(timeout.unsigned_abs()) > longest {
            found.push(format!(
                "timeoutSeconds is {timeout} and must be at most {longest}"
            ));
        }
        let policy = self.webhook.failure_policy.as_deref();
        let policy = policy.unwrap_or(FailurePolicy::Fail.as_str());
        if policy != FailurePolicy::Ignore.as_str() && kind.scope != MatchScope::Certain {
            found.push(format!("failurePolicy is {policy} and must be Ignore"));
        }
    }

    fn compare_call(&self, kind: &EntryKind, found: &mut Vec<String>) {
        let call = &self.webhook;
        let mut is_to_be = |field: &str, stands: Option<&str>, wanted: &str| {
            if let Some(stands) = stands.filter(|stands| *stands != wanted) {
                found.push(format!("{field} is {stands} and must be {wanted}"));
            }
        };
        is_to_be("matchPolicy", call.match_policy.as_deref(), "Equivalent");
        // Webhooks of `/validate` have no such field.
        let reinvocation = call.reinvocation_policy.as_deref();
        is_to_be("reinvocationPolicy", reinvocation, "IfNeeded");
        let service = call.client_config.service.as_ref();
        let path = service.map(|service| service.path.as_deref().unwrap_or("/"));
        is_to_be("clientConfig.service.path", path, kind.path());
        let url = call.client_config.url.as_deref();
        if url.is_some_and(|url| !url.ends_with(kind.path())) {
            found.push(format!("clientConfig.url must end with {}", kind.path()));
        }
    }

    fn compare_rules(&self, kind: &EntryKind, found: &mut Vec<String>) {
        let of_custom_resources = kind.scope == MatchScope::CustomResources;
        let wanted: BTreeSet<String> = kind.rules(&[]).iter().flat_map(matched).collect();
        let stands: BTreeSet<String> = self.webhook.rules.iter().flatten().flat_map(matched).collect();
        let mut further: Vec<&String> = stands.difference(&wanted).collect();
        // Configured custom resources are as good as built-in ones.
        further.retain(|matched| !of_custom_resources || !is_custom_resource(matched));
        if !further.is_empty() {
            found.push(format!(
                "its rules match more than Transom evaluates ({})",
                list(&further, NAMED)
            ));
        }
        // A wildcard matches everything, so only the excess is reported.
        let is_wild = stands
            .iter()
            .any(|matched| matched.replace("/*/", "/").contains('*'));
        let missing: Vec<&String> = wanted.difference(&stands).collect();
        if !missing.is_empty() && !is_wild {
            found.push(format!("its rules omit {}", list(&missing, NAMED)));
        }
    }

    fn compare_conditions(&self, found: &mut Vec<String>) {
        let ours = |condition: &&MatchCondition| NAMES.contains(&condition.name.as_str());
        // Each of Transom's conditions tests for evidence of Windows, or for its absence.
        let looks = |condition: &MatchCondition| condition.expression.contains("windows");
        if !self.conditions().iter().filter(ours).any(looks) {
            let stands = if self.conditions().is_empty() {
                "no matchConditions"
            } else {
                "none of Transom's matchConditions"
            };
            found.push(format!(
                "it has {stands}, so that it is called for pods that are not for Windows"
            ));
        }
        let others = self.conditions().iter().filter(|condition| !ours(condition));
        let others: Vec<&str> = others.map(|condition| condition.name.as_str()).collect();
        if !others.is_empty() {
            found.push(format!(
                "Transom has no condition {}, which may exclude Windows pods",
                list(&others, NAMED)
            ));
        }
    }

    fn compare_selectors(&self, found: &mut Vec<String>) {
        let selects = |name: &str, label: Option<(&str, &str)>| {
            let labels = [(EVERY_NAMESPACE, name)].into_iter().chain(label);
            let labels = labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            self.namespaces.selects(&labels)
        };
        let mut matched: Vec<&str> = NEVER.into_iter().filter(|never| selects(never, None)).collect();
        if selects("other", Some((IGNORE_LABEL, "true"))) {
            matched.push("those with transom.dev/ignore=true");
        }
        if !matched.is_empty() {
            found.push(format!(
                "its namespaceSelector does not exclude {}",
                list(&matched, NAMED)
            ));
        }
        let selects_all = |selector: &LabelSelector| *selector == LabelSelector::default();
        if !self.webhook.object_selector.as_ref().is_none_or(selects_all) {
            found.push(
                "its objectSelector excludes objects by labels that their authors choose; remove it"
                    .to_owned(),
            );
        }
    }
}
