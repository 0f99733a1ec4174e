//! Reading `WindowsPodPolicy` objects from a file, with errors that name line and remedy.

use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster_config::ClusterConfigSpec;
use super::compile::{UnknownNameHandling, compile};
use super::decode::read;
use super::field_error::{FieldError, FieldStep, MOST_PROBLEMS, WHOLE};
use super::node_policy::WindowsNodePolicySpec;
use super::node_pool::WindowsNodePoolSpec;
use super::pod_policy::WindowsPodPolicySpec;
use super::{API_VERSION, NODE_POLICY, NODE_POOL, POD_POLICY};
use crate::engine::policy_set::StoredPolicy;
use crate::manifest::{self, Document, NodeStep, ParseWarning, Position};
use crate::model::cluster::config::ClusterConfig;
use crate::model::nodes::node::{Host, Taint};
use crate::model::syntax::text::hex;

/// An object of Transom as it is written in a file: nothing unknown, and no more of the metadata than its name.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written<S> {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: S,
    #[serde(rename = "status", default)]
    _status: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Debug)]
struct Metadata {
    name: String,
}

/// What the policies of a file say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PolicyFile {
    /// Every `WindowsPodPolicy`.
    pub pod_policies: Vec<StoredPolicy>,
    /// Every `WindowsNodePool`.
    pub pools: Vec<Host>,
    /// The taints that the `WindowsNodePolicy`s require.
    pub required_taints: Vec<Taint>,
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

/// Reads every policy of a YAML or JSON file, which can be an export of a cluster: objects of other API groups are skipped.
/// A `WindowsNodePool` says which nodes there may be, and a `WindowsNodePolicy` which taints they have.
///
/// # Errors
/// What is wrong with the file, up to ten problems of each policy in it: one bad policy makes the whole file unusable,
/// so that the author never gets half of what was written.
pub fn read_policies(bytes: Vec<u8>) -> Result<PolicyFile, Vec<PolicyFileError>> {
    let parsed = manifest::parse(bytes);
    let mut errors: Vec<PolicyFileError> = (parsed.errors.iter())
        .map(|error| PolicyFileError {
            line: error.line,
            message: error.message.clone(),
        })
        .collect();
    let (ours, others): (Vec<&Document>, Vec<&Document>) = parsed
        .documents
        .iter()
        .partition(|document| is_of_transom(document));
    // What the API server ignores in another object does not matter here.
    let is_in_others = |warning: &ParseWarning| others.iter().any(|other| warning.is_inside(other));
    let warnings = parsed.warnings.iter().filter(|warning| !is_in_others(warning));
    errors.extend(warnings.map(|warning| PolicyFileError {
        line: warning.position.line,
        message: warning.message.clone(),
    }));
    let mut file = PolicyFile::default();
    for document in ours {
        let read = if is_a(document, NODE_POLICY) {
            read_node_policy(document).map(|taints| file.required_taints.extend(taints))
        } else if is_a(document, NODE_POOL) {
            read_node_pool(document).map(|pool| file.pools.push(pool))
        } else {
            read_policy(document).map(|policy| file.pod_policies.push(policy))
        };
        errors.extend(read.err().into_iter().flatten());
    }
    if file.pod_policies.is_empty() && errors.is_empty() {
        errors.push(PolicyFileError {
            line: 1,
            message: format!(
                "there is no {POD_POLICY} in the file; it needs one with apiVersion: {API_VERSION}"
            ),
        });
    }
    if errors.is_empty() { Ok(file) } else { Err(errors) }
}

/// What a document says that it is.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PolicyHeader {
    api_version: String,
    kind: String,
}

impl PolicyHeader {
    fn of(document: &Document) -> Self {
        serde_json::from_str(document.json()).unwrap_or_default()
    }
}

/// Whether a document is of a kind of Transom's that has policies, in any version.
fn is_of_transom(document: &Document) -> bool {
    let group = |version: &str| version.split('/').next().map(str::to_owned);
    let header = PolicyHeader::of(document);
    group(&header.api_version) == group(API_VERSION)
}

/// Whether a document says that it is a policy of this kind, in the version that is known.
fn is_a(document: &Document, kind: &str) -> bool {
    let header = PolicyHeader::of(document);
    header.api_version == API_VERSION && header.kind == kind
}

/// Reads one document as a `WindowsPodPolicy`.
///
/// # Errors
/// It is something else, or up to ten problems of it with their lines.
pub fn read_policy(document: &Document) -> Result<StoredPolicy, Vec<PolicyFileError>> {
    if !is_a(document, POD_POLICY) {
        let header = PolicyHeader::of(document);
        let what = format!("{} {}", header.api_version, header.kind);
        let message = format!(
            "this is not a policy but \"{}\"; a policy has apiVersion: {API_VERSION} and kind: {POD_POLICY}",
            what.trim()
        );
        let line = document.start().line;
        return Err(vec![PolicyFileError { line, message }]);
    }
    compiled(document).map_err(|problems| in_order(document, problems))
}

/// Reads one document that is a `WindowsNodePolicy`: the taints that it requires.
///
/// # Errors
/// Up to ten problems of it with their lines.
pub fn read_node_policy(document: &Document) -> Result<Vec<Taint>, Vec<PolicyFileError>> {
    let required = |policy: Written<WindowsNodePolicySpec>| Ok(policy.spec.required_taints().0);
    let read = value_of(document)
        .and_then(|value| read::<Written<WindowsNodePolicySpec>>(value, None).then(required));
    read.map_err(|problems| in_order(document, problems))
}

/// Reads one document that is a `WindowsNodePool`.
///
/// # Errors
/// Up to ten problems of it with their lines.
pub fn read_node_pool(document: &Document) -> Result<Host, Vec<PolicyFileError>> {
    let pool = value_of(document).and_then(|value| {
        read::<Written<WindowsNodePoolSpec>>(value, None).then(|written| {
            let (host, problems) = written.spec.host(&written.metadata.name);
            if problems.is_empty() {
                Ok(host)
            } else {
                Err(problems)
            }
        })
    });
    pool.map_err(|problems| in_order(document, problems))
}

fn compiled(document: &Document) -> Result<StoredPolicy, Vec<FieldError>> {
    let value = value_of(document)?;
    let reading = read::<Written<WindowsPodPolicySpec>>(value, None);
    reading.then(|written| compile(written.metadata.name, written.spec, UnknownNameHandling::Refused))
}

/// Reads one document that is not a custom resource, such as a configuration file.
///
/// # Errors
/// Up to ten problems of it with their lines.
pub fn read_document<T: DeserializeOwned>(document: &Document) -> Result<T, Vec<PolicyFileError>> {
    let value = value_of(document).and_then(|value| match value {
        Value::Object(_) => Ok(value),
        // serde would take a list for the fields in their order.
        _ => Err(vec![FieldError::at(
            Vec::new(),
            "this is not a map of fields, as in policy: policy.yaml",
        )]),
    });
    let decoded = value.and_then(|value| read::<T>(value, None).then(Ok));
    decoded.map_err(|problems| {
        let mut errors = in_order(document, problems);
        for error in &mut errors {
            let rest = error.message.strip_prefix(WHOLE);
            if let Some(rest) = rest.and_then(|rest| rest.strip_prefix(": ")) {
                error.message = rest.to_owned();
            }
        }
        errors
    })
}

/// A file of facts about the cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterConfigFile {
    pub config: ClusterConfig,
    /// SHA-256 of the file without the line breaks at its end, in hexadecimal digits: a ConfigMap and the chart's template
    /// differ in these only.
    pub hash: String,
}

/// Reads a file of facts about the cluster, as YAML or JSON; an empty one states nothing.
///
/// # Errors
/// What is wrong with the file, up to ten problems.
pub fn read_cluster_config(bytes: Vec<u8>) -> Result<ClusterConfigFile, Vec<PolicyFileError>> {
    let end = bytes
        .iter()
        .rposition(|byte| !b"\r\n".contains(byte))
        .map_or(0, |last| last + 1);
    let hash = hex(digest(&SHA256, bytes.get(..end).unwrap_or_default()).as_ref());
    let mut parsed = manifest::parse(bytes);
    if parsed.documents.is_empty() && parsed.errors.is_empty() {
        parsed = manifest::parse(b"{}".to_vec());
    }
    let at = |line: usize, message: &str| PolicyFileError {
        line,
        message: message.to_owned(),
    };
    let mut errors: Vec<PolicyFileError> = (parsed.errors.iter())
        .map(|error| at(error.line, &error.message))
        .collect();
    let warnings = parsed.warnings.iter();
    errors.extend(warnings.map(|warning| at(warning.position.line, &warning.message)));
    if let Some(second) = parsed.documents.get(1) {
        errors.push(at(
            second.start().line,
            "there is a second document; the file has only one",
        ));
    }
    let read = parsed.documents.first().map(|document| {
        let spec = read_document::<ClusterConfigSpec>(document)?;
        spec.compile().map_err(|problems| in_order(document, problems))
    });
    match read {
        Some(Ok(config)) if errors.is_empty() => Ok(ClusterConfigFile { config, hash }),
        read => {
            errors.extend(read.and_then(Result::err).into_iter().flatten());
            Err(errors)
        }
    }
}

fn value_of(document: &Document) -> Result<Value, Vec<FieldError>> {
    let value: Value = serde_json::from_str(document.json())
        .map_err(|error| vec![FieldError::at(Vec::new(), &error.to_string())])?;
    if value.get("spec").is_some_and(Value::is_array) {
        // serde would take a list for the fields in their order.
        let spec = vec![FieldStep::Key("spec".to_owned())];
        return Err(vec![FieldError::at(
            spec,
            "expected a map of fields, found a list",
        )]);
    }
    Ok(value)
}

/// The problems with their lines, in the order of the file; of many the first.
fn in_order(document: &Document, problems: Vec<FieldError>) -> Vec<PolicyFileError> {
    let place = |problem: &FieldError| {
        let steps: Vec<NodeStep<'_>> = problem.path.iter().map(FieldStep::step).collect();
        document.locate(&steps)
    };
    let mut placed: Vec<(Position, FieldError)> = problems
        .into_iter()
        .map(|problem| (place(&problem), problem))
        .collect();
    placed.sort_by_key(|(position, _)| (position.line, position.column));
    let count = placed.len();
    let mut errors: Vec<PolicyFileError> = (placed.into_iter().take(MOST_PROBLEMS + 1))
        .map(|(position, problem)| PolicyFileError {
            line: position.line,
            message: problem.message,
        })
        .collect();
    if let Some(first_left_out) = errors.get_mut(MOST_PROBLEMS) {
        first_left_out.message = format!("and {} more problems from here on", count - MOST_PROBLEMS);
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::policy::{Action, IgnoredFields, PlacementMode, Policy};

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
    fn a_policy_that_enforces_is_the_one_of_serve_standalone() {
        let text = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: built-in}\nspec: {mode: Enforce}\n";
        let policies = read_policies(text.into()).unwrap().pod_policies;
        assert_eq!(policies, [StoredPolicy::for_all(Policy::standalone())]);
        // A policy that only holds an exemption must not turn denial on.
        let without = text.replace("mode: Enforce", "priority: 1");
        let errors = read_policies(without.into()).unwrap_err();
        assert_eq!(
            errors[0].message,
            "spec: the field \"mode\" is missing; it has no default"
        );
    }

    #[test]
    fn what_the_policy_says_itself_counts_instead_of_its_mode() {
        let text = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: p}\nspec:\n  mode: Warn\n  placement: {mode: Disabled}\n  validation:\n    ignoredFields: Remove\n    rules: [{name: run-as-user, action: Disabled}, {name: host-pid, action: Audit}]\n";
        let policy = &read_policies(text.into()).unwrap().pod_policies[0].policy;
        assert_eq!(
            (policy.validation, policy.placement, policy.ignored_fields),
            (Action::Warn, PlacementMode::Disabled, IgnoredFields::Remove)
        );
        assert_eq!(policy.actions.get("TSM204"), Some(&Action::Disabled));
        assert_eq!(policy.actions.get("TSM401"), Some(&Action::Audit));
    }

    #[test]
    fn a_wait_is_a_number_within_its_bounds() {
        assert_eq!(
            errors("  mode: Audit\n  evidence:\n    imageWaitMilliseconds: 501\n"),
            "8: spec.evidence.imageWaitMilliseconds: 501 is not valid; write a number from 0 to 500"
        );
    }

    #[test]
    fn what_is_unknown_is_refused_with_its_line_and_the_nearest_name() {
        assert_eq!(
            errors("  mode: Audit\n  validaton: {}\n"),
            "7: spec: unknown field \"validaton\"; did you mean validation?"
        );
        assert_eq!(
            errors("  mode: Enforc\n"),
            "6: spec.mode: unknown value \"Enforc\"; did you mean Enforce?"
        );
        assert_eq!(
            errors(
                "  mode: Audit\n  validation:\n    rules:\n    - {name: host-pid, action: Warn}\n    - {name: run-as-usr, action: Warn}\n"
            ),
            "10: spec.validation.rules[1]: unknown rule \"run-as-usr\"; did you mean run-as-user?"
        );
        // Rules are identified by name, like labels.
        assert_eq!(
            errors("  mode: Audit\n  validation:\n    rules:\n    - {name: TSM204, action: Warn}\n"),
            "9: spec.validation.rules[0]: unknown rule \"TSM204\"; did you mean run-as-user?"
        );
        assert_eq!(
            errors("  mode: Audit\n  validation:\n    rules: [{name: run-as-user, action: warn}]\n"),
            "8: spec.validation.rules[0].action: unknown value \"warn\"; did you mean Warn?"
        );
        assert_eq!(
            errors(
                "  mode: Audit\n  exemptions:\n  - {name: e, expiresOn: soon, owner: a, reason: b, rules: [\"*\"], users: [c]}\n"
            ),
            "8: spec.exemptions[0]: name at least one of namespaces, images, usernames or groups\n8: \
             spec.exemptions[0].expiresOn: \"soon\" is not a date; write it as in 2027-03-31\n8: spec.exemptions[0]: unknown field \
             \"users\"; use one of name, owner, reason, expiresOn, rules, namespaces, images, usernames, groups"
        );
        assert_eq!(
            errors(
                "  mode: Audit\n  exemptions:\n  - {name: e, expiresOn: 2027-01-01, owner: a, reason: b, rules: []}\n"
            ),
            "8: spec.exemptions[0]: name at least one of namespaces, images, usernames or groups\n8: \
             spec.exemptions[0].rules: name the rules; [\"*\"] means all rules"
        );
    }

    #[test]
    fn every_problem_is_reported_in_the_order_of_the_file() {
        let spec = "  priority: high\n  mode: audit\n  validation: {rules: [{name: run-as-usr, action: Warn}]}\n  placement:\n    runtimeClasses:\n     names:\n     \
                    - {release: \"1809\", name: windows-2019}\n  namespaceSelector:\n    matchLabels:\n      \
                    not a key!: x\n    matchExpressions:\n    - {key: team, operator: In}\n  exemptions:\n  \
                    - {name: e, expiresOn: soon, owner: 7, rules: [\"*\"], groups: [g]}\n";
        let found = errors(spec);
        let releases: Vec<&str> = crate::model::windows::build::RELEASES
            .iter()
            .map(|r| r.name)
            .collect();
        let expected = [
            "6: spec.priority: expected a whole number, found the text \"high\"".to_owned(),
            "7: spec.mode: unknown value \"audit\"; did you mean Audit?".to_owned(),
            "8: spec.validation.rules[0]: unknown rule \"run-as-usr\"; did you mean run-as-user?".to_owned(),
            format!(
                "12: spec.placement.runtimeClasses.names[0].release: unknown release \"1809\"; did you mean ltsc2019? use one of {}",
                releases.join(", ")
            ),
            "15: spec.namespaceSelector.matchLabels: \"not a key!\" is not a label key: its name takes letters, \
             digits, - _ and . with a letter or digit at both ends; write it as in team or example.com/team"
                .to_owned(),
            "17: spec.namespaceSelector.matchExpressions[0].values: In needs at least one value; to require only that \
             the label exists, write Exists or DoesNotExist"
                .to_owned(),
            "19: spec.exemptions[0]: the field \"reason\" is missing; it has no default".to_owned(),
            "19: spec.exemptions[0].expiresOn: \"soon\" is not a date; write it as in 2027-03-31".to_owned(),
            "19: spec.exemptions[0].owner: expected text, found 7; write it in quotes: \"7\"".to_owned(),
        ];
        assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn of_many_problems_the_first_are_reported_and_how_many_more_there_are() {
        use std::fmt::Write as _;
        let mut spec = "  mode: Audit\n  validation:\n   rules:\n".to_owned();
        for i in 0..25 {
            let _ = writeln!(spec, "   - {{name: no-rule-{i}, action: Warn}}");
        }
        let found = errors(&spec);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), 11, "{found}");
        assert_eq!(lines[10], "19: and 15 more problems from here on");
    }

    #[test]
    fn a_file_needs_a_policy_and_other_objects_in_it_are_skipped() {
        let other = "apiVersion: v1\nkind: Pod\nspec: {a: 1, a: 2}\n";
        let error = &read_policies(other.into()).unwrap_err()[0];
        assert_eq!(
            error.message,
            "there is no WindowsPodPolicy in the file; it needs one with apiVersion: transom.dev/v1alpha1"
        );
        assert!(read_policies(Vec::new()).is_err());
        let policy = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: a}\nspec: {mode: Audit}\n";
        let file = read_policies(format!("{other}---\n{policy}").into()).unwrap();
        assert_eq!(file.pod_policies.len(), 1);
        for (text, message) in [
            (
                policy.replace("v1alpha1", "v2"),
                "this is not a policy but \"transom.dev/v2 WindowsPodPolicy\"",
            ),
            (
                policy.replace("WindowsPodPolicy", "WindowsPolicy"),
                "this is not a policy but",
            ),
            (
                policy.replace("mode: Audit", "mode: Audit, mode: Warn"),
                "the key mode is given twice",
            ),
        ] {
            let errors = read_policies(format!("{other}---\n{policy}---\n{text}").into()).unwrap_err();
            assert_eq!(errors.len(), 1, "{text}");
            assert!(errors[0].message.starts_with(message), "{}", errors[0]);
        }
    }

    #[test]
    fn pools_beside_the_policies_and_the_taints_of_node_policies_are_read() {
        let object = |kind: &str, spec: &str| {
            format!("apiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n")
        };
        let pods = object("WindowsPodPolicy", "{mode: Audit}");
        let pool = object(
            "WindowsNodePool",
            "{nodeSelector: {matchLabels: {pool: win}}, template: {build: 10.0.20348}}",
        );
        let file = read_policies(format!("{pods}---\n{pool}").into()).unwrap();
        assert_eq!((file.pod_policies.len(), &*file.pools[0].name), (1, "a"));
        let wrong = pool.replace("10.0.20348", "ltsc2022");
        let errors = read_policies(format!("{pods}---\n{wrong}").into()).unwrap_err();
        assert_eq!(
            errors[0].to_string(),
            "9: spec.template.build: \"ltsc2022\" is not a build; write it as in 10.0.20348"
        );
        let nodes = object("WindowsNodePolicy", "{mode: Audit, priority: 1}");
        let file = read_policies(format!("{pods}---\n{nodes}").into()).unwrap();
        assert_eq!(file.required_taints, [Taint::no_schedule("os", "windows")]);
        let wrong = nodes.replace("priority: 1", "priority: high");
        assert!(read_policies(format!("{pods}---\n{wrong}").into()).is_err());
        for alone in [nodes, pool] {
            assert!(
                read_policies(alone.into()).is_err(),
                "no policy for pods is in it"
            );
        }
        let other = "apiVersion: transom.dev/v1\nkind: WindowsNodePolicy\n";
        assert!(read_policies(format!("{pods}---\n{other}").into()).is_err());
    }
}
