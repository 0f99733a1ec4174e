//! Reading `WindowsPodPolicy` objects from a file, with errors that name line and cure.

use serde::Deserialize;
use serde_json::Value;

use super::compile::{Unknown, compile};
use super::pod_policy::WindowsPodPolicySpec;
use super::problem::{MOST_PROBLEMS, Place, Problem};
use super::read::read;
use super::{API_VERSION, NODE_POLICY, POD_POLICY};
use crate::engine::effective::StoredPolicy;
use crate::manifest::{self, Document, Position, Step};

/// A `WindowsPodPolicy` as it is written in a file: nothing unknown, and no more of the metadata than its name.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: WindowsPodPolicySpec,
    #[serde(rename = "status", default)]
    _status: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Debug)]
struct Metadata {
    name: String,
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

/// Reads every `WindowsPodPolicy` of a YAML or JSON file. A `WindowsNodePolicy` beside them is passed over: nodes are not
/// what is judged by a file.
///
/// # Errors
/// What is wrong with the file, up to ten problems of each policy in it: one bad policy makes the whole file unusable,
/// so that the author never gets half of what was written.
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
        if is_a(document, NODE_POLICY) {
            continue;
        }
        match read_policy(document) {
            Ok(policy) => policies.push(policy),
            Err(problems) => errors.extend(problems),
        }
    }
    if policies.is_empty() && errors.is_empty() {
        errors.push(PolicyFileError {
            line: 1,
            message: format!("there is no {POD_POLICY} in the file"),
        });
    }
    if errors.is_empty() {
        Ok(policies)
    } else {
        Err(errors)
    }
}

/// What a document says that it is.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Header {
    api_version: String,
    kind: String,
}

impl Header {
    fn of(document: &Document) -> Self {
        serde_json::from_str(document.json()).unwrap_or_default()
    }
}

/// Whether a document says that it is a policy of this kind, in the version that is known.
fn is_a(document: &Document, kind: &str) -> bool {
    let header = Header::of(document);
    header.api_version == API_VERSION && header.kind == kind
}

/// Reads one document as a `WindowsPodPolicy`.
///
/// # Errors
/// It is something else, or up to ten problems of it with their lines.
pub fn read_policy(document: &Document) -> Result<StoredPolicy, Vec<PolicyFileError>> {
    if !is_a(document, POD_POLICY) {
        let header = Header::of(document);
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

fn compiled(document: &Document) -> Result<StoredPolicy, Vec<Problem>> {
    let value: Value = serde_json::from_str(document.json())
        .map_err(|error| vec![Problem::at(Vec::new(), &error.to_string())])?;
    if value.get("spec").is_some_and(Value::is_array) {
        // serde would take a list for the fields in their order.
        let spec = vec![Place::Key("spec".to_owned())];
        return Err(vec![Problem::at(
            spec,
            "a list stands here, and it has to be a map of fields",
        )]);
    }
    let reading = read::<Written>(value, None);
    reading.then(|written| compile(written.metadata.name, written.spec, Unknown::Refused))
}

/// The problems with their lines, in the order of the file; of many the first.
fn in_order(document: &Document, problems: Vec<Problem>) -> Vec<PolicyFileError> {
    let place = |problem: &Problem| {
        let steps: Vec<Step<'_>> = problem.path.iter().map(Place::step).collect();
        document.locate(&steps)
    };
    let mut placed: Vec<(Position, Problem)> = problems
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
    use crate::model::policy::{Action, Inert, Policy, Switch};

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
            (policy.validation, policy.placement, policy.inert),
            (Action::Warn, Switch::Off, Inert::Repair)
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
    fn every_problem_is_told_in_the_order_of_the_file() {
        let spec = "  priority: high\n  validation: deny\n  rules: {run-as-usr: Warn}\n  runtimeClasses:\n    \
                    \"1809\": windows-2019\n    ltsc2022: windows-2022\n  namespaceSelector:\n    matchLabels:\n      \
                    not a key!: x\n    matchExpressions:\n    - {key: team, operator: In}\n  exemptions:\n  \
                    - {expires: soon, owner: 7}\n";
        let found = errors(spec);
        let releases: Vec<&str> = crate::model::build::RELEASES.iter().map(|r| r.name).collect();
        let expected = [
            "6: spec.priority: the text \"high\" stands here, and it has to be a whole number".to_owned(),
            "7: spec.validation: there is no value \"deny\"; did you mean Deny?".to_owned(),
            "8: spec.rules: there is no rule \"run-as-usr\"; did you mean run-as-user?".to_owned(),
            format!(
                "10: spec.runtimeClasses: there is no release \"1809\"; did you mean ltsc2019? there are {}",
                releases.join(", ")
            ),
            "14: spec.namespaceSelector.matchLabels: \"not a key!\" is no key of a label: its name takes letters, \
             digits, - _ and . with a letter or digit at both ends; write it as in team or example.com/team"
                .to_owned(),
            "16: spec.namespaceSelector.matchExpressions[0].values: In needs at least one value; to ask only whether \
             the label is there, write Exists or DoesNotExist"
                .to_owned(),
            "18: spec.exemptions[0]: the field \"reason\" is missing; it has no default".to_owned(),
            "18: spec.exemptions[0].expires: \"soon\" is no date; write it as in 2027-03-31".to_owned(),
            "18: spec.exemptions[0].owner: 7 stands here, and it has to be text; write it in quotes: \"7\"".to_owned(),
        ];
        assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn of_many_problems_the_first_are_told_and_how_many_more_there_are() {
        use std::fmt::Write as _;
        let mut spec = "  rules:\n".to_owned();
        for i in 0..25 {
            let _ = writeln!(spec, "    no-rule-{i}: Warn");
        }
        let found = errors(&spec);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), 11, "{found}");
        assert_eq!(lines[10], "17: and 15 more problems from here on");
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

    #[test]
    fn a_node_policy_beside_the_policies_is_passed_over() {
        let nodes = format!("apiVersion: {API_VERSION}\nkind: WindowsNodePolicy\nmetadata: {{name: a}}\n");
        let pods = format!("apiVersion: {API_VERSION}\nkind: WindowsPodPolicy\nmetadata: {{name: a}}\n");
        assert_eq!(
            read_policies(format!("{pods}---\n{nodes}").into()).unwrap().len(),
            1
        );
        assert!(
            read_policies(nodes.into()).is_err(),
            "no policy for pods is in it"
        );
        let older = "apiVersion: transom.dev/v1\nkind: WindowsNodePolicy\n";
        assert!(read_policies(format!("{pods}---\n{older}").into()).is_err());
    }
}
