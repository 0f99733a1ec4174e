//! Reading `WindowsPodPolicy` objects from a file, with errors that name line and cure.

use serde::Deserialize;

use super::compile::{Place, Unknown, compile};
use super::pod_policy::WindowsPodPolicySpec;
use super::{API_VERSION, POD_POLICY};
use crate::engine::effective::StoredPolicy;
use crate::manifest::{self, Document, Step};

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
            message: format!("there is no {POD_POLICY} in the file"),
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
    if header.api_version != API_VERSION || header.kind != POD_POLICY {
        let what = format!("{} {}", header.api_version, header.kind);
        let message = format!(
            "this is not a policy but \"{}\"; a policy has apiVersion: {API_VERSION} and kind: {POD_POLICY}",
            what.trim()
        );
        return Err(at(&[], message));
    }
    let mut deserializer = serde_json::Deserializer::from_str(document.json());
    let written: Written = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let steps = steps_of(error.path());
        at(&steps, explain(&path, &error.inner().to_string()))
    })?;
    compile(written.metadata.name, written.spec, Unknown::Refused).map_err(|problem| {
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
pub fn explain(path: &str, error: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::{Action, Policy, Repair, Switch};

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
