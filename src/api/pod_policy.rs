//! `WindowsPodPolicy`: its fields, its defaults, and reading it from a file with errors that name line and cure.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::engine::effective::{DatedExemption, LabelSelector, NamespaceOverrides, StoredPolicy};
use crate::manifest::{self, Document, Step};
use crate::model::build::Build;
use crate::model::facts::{Host, Taint};
use crate::model::os::Os;
use crate::model::policy::{
    Action, Exemption, PlacementParts, Policy, PoolLabel, Repair, ReverseGuard, Switch,
};
use crate::rules;

/// The API version of the custom resources.
pub const API_VERSION: &str = "transom.dev/v1alpha1";
/// The kind of the policy for pods.
pub const KIND: &str = "WindowsPodPolicy";

/// A `WindowsPodPolicy` as it is written.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WindowsPodPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(rename = "status", default)]
    _status: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Debug)]
struct Metadata {
    name: String,
}

/// `spec` of a `WindowsPodPolicy`. Everything has a default: those of the chart's default policy.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Spec {
    priority: i32,
    namespace_selector: LabelSelector,
    namespace_overrides: NamespaceOverrides,
    validation: OrOff<Action>,
    placement: OrOff<Switch>,
    placement_parts: Parts,
    repair: OrOff<Repair>,
    reverse_guard: OrOff<ReverseGuard>,
    rules: BTreeMap<String, OrOff<Action>>,
    evidence: Evidence,
    tolerations: Vec<PoolTaint>,
    pools: Vec<Pool>,
    build: BuildSpec,
    runtime_classes: BTreeMap<String, String>,
    exemptions: Vec<ExemptionSpec>,
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            priority: 0,
            namespace_selector: LabelSelector::default(),
            namespace_overrides: NamespaceOverrides::default(),
            validation: OrOff(Action::Deny),
            placement: OrOff(Switch::Apply),
            placement_parts: Parts::default(),
            repair: OrOff(Repair::Off),
            reverse_guard: OrOff(ReverseGuard::Off),
            rules: BTreeMap::new(),
            evidence: Evidence::default(),
            tolerations: vec![PoolTaint {
                key: "os".into(),
                value: "windows".into(),
                effect: no_schedule(),
            }],
            pools: Vec::new(),
            build: BuildSpec::default(),
            runtime_classes: BTreeMap::new(),
            exemptions: Vec::new(),
        }
    }
}

/// A value that may be written `Off` without quotes, which YAML 1.1 (and so kubectl) reads as `false`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct OrOff<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Name<T> {
            type Value = OrOff<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name such as Off")
            }
            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Self::Value, E> {
                if on {
                    return Err(E::custom(
                        "true (or an unquoted On) is no value here; there is only Off",
                    ));
                }
                T::deserialize("Off".into_deserializer()).map(OrOff)
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
                T::deserialize(name.into_deserializer()).map(OrOff)
            }
        }
        deserializer.deserialize_any(Name(std::marker::PhantomData))
    }
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools)] // five independent switches
struct Parts {
    os: bool,
    os_field: bool,
    tolerations: bool,
    build: bool,
    runtime_class: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            os: true,
            os_field: true,
            tolerations: true,
            build: true,
            runtime_class: true,
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Evidence {
    pool_labels: Vec<PoolLabelSpec>,
    images: bool,
    namespace_default_os: Option<Os>,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence {
            pool_labels: Vec::new(),
            images: true,
            namespace_default_os: None,
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct PoolLabelSpec {
    key: String,
    value: String,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct PoolTaint {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default = "no_schedule")]
    effect: String,
}

fn no_schedule() -> String {
    "NoSchedule".to_owned()
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pool {
    name: String,
    #[serde(rename = "labels", default)]
    _labels: BTreeMap<String, String>,
    #[serde(default)]
    build: Option<String>,
    #[serde(default)]
    taints: Vec<PoolTaint>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
struct BuildSpec {
    trusted: bool,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExemptionSpec {
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    images: Vec<String>,
    expires: String,
    owner: String,
    reason: String,
}

/// A policy file, or a part of it, that cannot be used.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{line}: {message}")]
pub struct PolicyFileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, where, and what to write instead.
    pub message: String,
}

/// Reads every `WindowsPodPolicy` of a YAML or JSON file.
///
/// # Errors
/// Everything that is wrong with the file: one bad policy makes the whole file unusable, so that nobody gets half of
/// what was written.
pub fn read_policies(bytes: Vec<u8>) -> Result<Vec<StoredPolicy>, Vec<PolicyFileError>> {
    let parsed = manifest::parse(bytes);
    let mut errors: Vec<PolicyFileError> = (parsed.errors.into_iter())
        .map(|error| PolicyFileError {
            line: error.line,
            message: error.message,
        })
        .collect();
    let mut policies = Vec::new();
    for document in &parsed.documents {
        match read_policy(document) {
            Ok(policy) => policies.push(policy),
            Err(error) => errors.push(error),
        }
    }
    if policies.is_empty() && errors.is_empty() {
        errors.push(PolicyFileError {
            line: 1,
            message: format!("there is no {KIND} in the file"),
        });
    }
    if errors.is_empty() {
        Ok(policies)
    } else {
        Err(errors)
    }
}

fn read_policy(document: &Document) -> Result<StoredPolicy, PolicyFileError> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Header {
        api_version: String,
        kind: String,
    }
    let at = |steps: &[Step<'_>], message: String| PolicyFileError {
        line: document.locate(steps).line,
        message,
    };
    let header: Header = serde_json::from_str(document.json()).unwrap_or_default();
    if header.api_version != API_VERSION || header.kind != KIND {
        let what = format!("{} {}", header.api_version, header.kind);
        let message = format!(
            "this is not a policy but \"{}\"; a policy has apiVersion: {API_VERSION} and kind: {KIND}",
            what.trim()
        );
        return Err(at(&[], message));
    }
    let mut deserializer = serde_json::Deserializer::from_str(document.json());
    let policy: WindowsPodPolicy = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let steps = steps_of(error.path());
        at(&steps, explain(&path, &error.inner().to_string()))
    })?;
    compile(policy).map_err(|problem| {
        let steps: Vec<Step<'_>> = problem.path.iter().map(Place::step).collect();
        at(&steps, problem.message)
    })
}

fn steps_of(path: &serde_path_to_error::Path) -> Vec<Step<'_>> {
    use serde_path_to_error::Segment;
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Map { key } => Some(Step::Key(key)),
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

/// Turns serde's words into ours, with the nearest valid name: "unknown field `validaton`, expected one of …".
fn explain(path: &str, error: &str) -> String {
    let error = error.rsplit_once(" at line ").map_or(error, |(text, _)| text);
    let mut quoted = error.split('`').skip(1).step_by(2);
    let unknown = error.starts_with("unknown field") || error.starts_with("unknown variant");
    let (Some(written), true) = (quoted.next(), unknown) else {
        return format!("{path}: {error}");
    };
    let known: Vec<&str> = quoted.collect();
    let what = if error.starts_with("unknown field") {
        "field"
    } else {
        "value"
    };
    let nearest = known
        .iter()
        .min_by_key(|name| strsim::damerau_levenshtein(name, written));
    let hint = match nearest.filter(|name| strsim::damerau_levenshtein(name, written) <= written.len() / 2) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("there are {}", known.join(", ")),
    };
    let path = path
        .strip_suffix(written)
        .map_or(path, |parent| parent.trim_end_matches('.'));
    let path = if path.is_empty() { "the policy" } else { path };
    format!("{path}: there is no {what} \"{written}\"; {hint}")
}

enum Place {
    Key(String),
    Index(usize),
}

impl Place {
    fn step(&self) -> Step<'_> {
        match self {
            Place::Key(key) => Step::Key(key),
            Place::Index(index) => Step::Index(*index),
        }
    }
}

struct Problem {
    path: Vec<Place>,
    message: String,
}

fn problem(path: &[&str], message: String) -> Problem {
    let place = |part: &&str| {
        part.parse()
            .map_or_else(|_| Place::Key((*part).to_owned()), Place::Index)
    };
    Problem {
        path: path.iter().map(place).collect(),
        message,
    }
}

fn compile(written: WindowsPodPolicy) -> Result<StoredPolicy, Problem> {
    let spec = written.spec;
    let mut pool_labels = Policy::well_known_pool_labels();
    pool_labels.extend(spec.evidence.pool_labels.into_iter().map(|l| PoolLabel {
        key: l.key,
        value: l.value,
    }));
    let policy = Policy {
        name: written.metadata.name,
        validation: spec.validation.0,
        placement: spec.placement.0,
        parts: PlacementParts {
            os: spec.placement_parts.os,
            os_field: spec.placement_parts.os_field,
            tolerations: spec.placement_parts.tolerations,
            build: spec.placement_parts.build,
            runtime_class: spec.placement_parts.runtime_class,
        },
        repair: spec.repair.0,
        reverse_guard: spec.reverse_guard.0,
        actions: actions(spec.rules)?,
        pool_labels,
        image_evidence: spec.evidence.images,
        namespace_default_os: spec.evidence.namespace_default_os,
        taints: spec.tolerations.into_iter().map(taint).collect(),
        pools: spec
            .pools
            .into_iter()
            .enumerate()
            .map(|(i, pool)| host(i, pool))
            .collect::<Result<_, _>>()?,
        trusted_build_label: spec.build.trusted,
        runtime_classes: spec.runtime_classes,
        exemptions: Vec::new(),
    };
    let exemptions = spec
        .exemptions
        .into_iter()
        .enumerate()
        .map(|(i, e)| exemption(i, e));
    Ok(StoredPolicy {
        policy,
        priority: spec.priority,
        namespace_selector: spec.namespace_selector,
        overrides: spec.namespace_overrides,
        exemptions: exemptions.collect::<Result<_, _>>()?,
    })
}

fn actions(written: BTreeMap<String, OrOff<Action>>) -> Result<BTreeMap<&'static str, Action>, Problem> {
    (written.into_iter())
        .map(|(name, action)| Ok((rule(&name, &["spec", "rules", &name])?, action.0)))
        .collect()
}

fn rule(name: &str, path: &[&str]) -> Result<&'static str, Problem> {
    rules::find(name).map(|rule| rule.id).ok_or_else(|| {
        let hint = match rules::nearest(name) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "see transom rules".to_owned(),
        };
        let place = path
            .get(..path.len().saturating_sub(1))
            .unwrap_or_default()
            .join(".");
        problem(path, format!("{place}: there is no rule \"{name}\"; {hint}"))
    })
}

fn taint(written: PoolTaint) -> Taint {
    Taint {
        key: written.key,
        value: written.value,
        effect: written.effect,
    }
}

fn host(index: usize, pool: Pool) -> Result<Host, Problem> {
    let build = match &pool.build {
        None => None,
        Some(text) => Some(Build::parse_label(text).ok_or_else(|| {
            let message =
                format!("spec.pools[{index}].build: \"{text}\" is no build; write it as in 10.0.20348");
            problem(&["spec", "pools", &index.to_string(), "build"], message)
        })?),
    };
    Ok(Host {
        name: pool.name,
        build,
        taints: pool.taints.into_iter().map(taint).collect(),
        containerd: None,
    })
}

fn exemption(index: usize, written: ExemptionSpec) -> Result<DatedExemption, Problem> {
    let at = index.to_string();
    let expires: Date = written.expires.parse().map_err(|_| {
        let text = &written.expires;
        let message =
            format!("spec.exemptions[{index}].expires: \"{text}\" is no date; write it as in 2027-03-31");
        problem(&["spec", "exemptions", &at, "expires"], message)
    })?;
    let rules = (written.rules.iter().enumerate())
        .map(|(i, name)| rule(name, &["spec", "exemptions", &at, "rules", &i.to_string()]))
        .collect::<Result<_, _>>()?;
    let note = format!("{} until {expires}: {}", written.owner, written.reason);
    Ok(DatedExemption {
        exemption: Exemption {
            rules,
            images: written.images,
            note,
        },
        users: written.users,
        groups: written.groups,
        namespaces: written.namespaces,
        expires,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(spec: &str) -> String {
        let text = format!(
            "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata:\n  name: p\nspec:\n{spec}"
        );
        let errors = read_policies(text.into_bytes()).unwrap_err();
        errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn an_empty_spec_is_the_default_policy() {
        let text = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: built-in}\n";
        let policies = read_policies(text.into()).unwrap();
        assert_eq!(policies, [StoredPolicy::for_all(Policy::standalone())]);
    }

    #[test]
    fn off_may_be_written_without_quotes() {
        let text = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: p}\nspec:\n  validation: Warn\n  placement: Off\n  repair: Inert\n  rules:\n    run-as-user: Off\n    TSM301: Audit\n";
        let policy = &read_policies(text.into()).unwrap()[0].policy;
        assert_eq!(
            (policy.validation, policy.placement, policy.repair),
            (Action::Warn, Switch::Off, Repair::Inert)
        );
        assert_eq!(policy.actions.get("TSM204"), Some(&Action::Off));
        assert_eq!(policy.actions.get("TSM301"), Some(&Action::Audit));
    }

    #[test]
    fn what_is_unknown_is_refused_with_its_line_and_the_nearest_name() {
        assert_eq!(
            errors("  validaton: Deny\n"),
            "6: spec: there is no field \"validaton\"; did you mean validation?"
        );
        assert_eq!(
            errors("  repair: Off\n  validation: Dny\n"),
            "7: spec.validation: there is no value \"Dny\"; did you mean Deny?"
        );
        assert_eq!(
            errors("  rules:\n    host-pid: Warn\n    run-as-usr: Warn\n"),
            "8: spec.rules: there is no rule \"run-as-usr\"; did you mean run-as-user?"
        );
        assert_eq!(
            errors("  rules:\n    run-as-user: warn\n"),
            "7: spec.rules.run-as-user: there is no value \"warn\"; did you mean Warn?"
        );
        assert_eq!(
            errors("  exemptions:\n  - {expires: soon, owner: a, reason: b}\n"),
            "7: spec.exemptions[0].expires: \"soon\" is no date; write it as in 2027-03-31"
        );
        assert_eq!(
            errors("  pools:\n  - name: win\n    build: ltsc2022\n"),
            "8: spec.pools[0].build: \"ltsc2022\" is no build; write it as in 10.0.20348"
        );
    }

    #[test]
    fn something_else_than_a_policy_is_refused() {
        let error = &read_policies("apiVersion: v1\nkind: Pod\n".into()).unwrap_err()[0];
        assert!(
            error.message.starts_with("this is not a policy but \"v1 Pod\""),
            "{error}"
        );
        assert!(read_policies(Vec::new()).is_err());
    }
}
