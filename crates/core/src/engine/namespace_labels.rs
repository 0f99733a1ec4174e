//! The labels with which a namespace changes the effect of a policy, and similar labels that have no effect.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::cluster::policy::{Mode, Policy};
use crate::model::syntax::suggest::nearest;

/// The label that changes the mode of the policy in a namespace.
pub const MODE_LABEL: &str = "transom.dev/mode";
/// The label that excludes a namespace.
pub const IGNORE_LABEL: &str = "transom.dev/ignore";

/// The prefix of every Transom label.
const PREFIX: &str = "transom.dev/";

/// What namespace labels may change of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum NamespaceOverrides {
    None,
    /// They may only make it stricter.
    #[default]
    Stricter,
    Any,
}

/// Whether a label excludes the namespace; the API server's selectors check the same.
pub fn is_out(labels: &BTreeMap<String, String>) -> bool {
    labels.get(IGNORE_LABEL).is_some_and(|value| value == "true")
}

/// Lets the label change the mode of the policy, as far as the policy allows it. Settings of the policy itself stay.
pub fn apply(policy: &mut Cow<'_, Policy>, labels: &BTreeMap<String, String>, overrides: NamespaceOverrides) {
    let mode = labels.get(MODE_LABEL).and_then(|value| mode(value));
    let changes = |mode: &Mode| *mode != policy.mode && allows(overrides, *mode, policy.mode);
    if let Some(mode) = mode.filter(changes) {
        policy.to_mut().set_mode(mode);
    }
}

fn mode(value: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.as_str() == value)
}

/// Whether a label may change the policy's mode; the same mode is always allowed.
fn allows(overrides: NamespaceOverrides, label: Mode, policy: Mode) -> bool {
    label == policy
        || match overrides {
            NamespaceOverrides::None => false,
            NamespaceOverrides::Stricter => label > policy,
            NamespaceOverrides::Any => true,
        }
}

/// The effective policy of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct EffectivePolicy<'p> {
    pub policy: &'p Policy,
    /// What labels may change in it.
    pub overrides: NamespaceOverrides,
    /// Whether it is the built-in one, because no stored policy selects the namespace.
    pub is_built_in: bool,
}

/// A label of a namespace that has no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IgnoredLabel {
    pub key: String,
    pub value: String,
    /// Whether the key is unknown; otherwise the value is the problem.
    pub is_unknown: bool,
    /// Why it has no effect.
    pub why: String,
    /// The label that was probably meant, with its value.
    pub meant: Option<(&'static str, &'static str)>,
    /// What else would make it effective.
    pub or_else: Option<String>,
}

/// The Transom labels that have no effect in a namespace with this policy. An excluded namespace stays excluded
/// regardless of its other labels.
pub fn ignored(labels: &BTreeMap<String, String>, in_force: &EffectivePolicy<'_>) -> Vec<IgnoredLabel> {
    if is_out(labels) {
        return Vec::new();
    }
    let ours = labels.iter().filter(|(key, _)| key.starts_with(PREFIX));
    ours.filter_map(|(key, value)| why_ignored(key, value, labels, in_force))
        .collect()
}

fn why_ignored(
    key: &str,
    value: &str,
    labels: &BTreeMap<String, String>,
    in_force: &EffectivePolicy<'_>,
) -> Option<IgnoredLabel> {
    let EffectivePolicy {
        policy, overrides, ..
    } = *in_force;
    let mut is_unknown = false;
    let (why, meant, or_else) = match key {
        MODE_LABEL => match mode(value) {
            Some(mode) if allows(overrides, mode, policy.mode) => return None,
            Some(_) => not_allowed(in_force),
            None => no_such_value(MODE_LABEL, value, &Mode::ALL.map(Mode::as_str)),
        },
        // The label says that the namespace is not excluded, which is correct.
        IGNORE_LABEL if value == "false" => return None,
        IGNORE_LABEL => not_true(IGNORE_LABEL, value),
        _ => {
            is_unknown = true;
            no_such_label(key, value, labels)
        }
    };
    Some(IgnoredLabel {
        key: key.to_owned(),
        value: value.to_owned(),
        is_unknown,
        why,
        meant,
        or_else,
    })
}

/// Why it has no effect, what was probably meant, and what else would make it effective.
type IgnoredReason = (String, Option<(&'static str, &'static str)>, Option<String>);

fn not_allowed(in_force: &EffectivePolicy<'_>) -> IgnoredReason {
    let name = &in_force.policy.name;
    let what = match in_force.overrides {
        NamespaceOverrides::None => "does not allow labels to change it (namespaceOverrides: None)",
        _ => "allows labels only to make it stricter (namespaceOverrides: Stricter)",
    };
    if in_force.is_built_in {
        let why = format!("no WindowsPodPolicy selects the namespace, and the built-in one {what}");
        let or_else = "create a WindowsPodPolicy that selects it and sets namespaceOverrides: Any, to make the label effective";
        return (why, None, Some(or_else.to_owned()));
    }
    let why = format!("WindowsPodPolicy {name} {what}");
    let or_else =
        format!("set namespaceOverrides: Any in WindowsPodPolicy {name}, to make the label effective");
    (why, None, Some(or_else))
}

fn no_such_value(key: &'static str, value: &str, known: &[&'static str]) -> IgnoredReason {
    let why = format!("the value is unknown; use {}", known.join(", "));
    let meant = nearest(value, known.iter().copied());
    (why, meant.map(|value| (key, value)), None)
}

fn not_true(key: &'static str, value: &str) -> IgnoredReason {
    let is_truthy = ["true", "yes", "on", "1"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes));
    let why = "only the value true excludes a namespace".to_owned();
    (why, is_truthy.then_some((key, "true")), None)
}

fn no_such_label(key: &str, value: &str, labels: &BTreeMap<String, String>) -> IgnoredReason {
    let known = [MODE_LABEL, IGNORE_LABEL];
    let why = format!("Transom does not know this label; use {}", known.join(", "));
    let meant = nearest(local(key), known.map(local));
    let meant = meant.and_then(|meant| known.into_iter().find(|label| local(label) == meant));
    let meant = meant.filter(|label| !labels.contains_key(*label));
    let meant = meant.and_then(|label| {
        let values: &[&'static str] = match label {
            MODE_LABEL => &Mode::ALL.map(Mode::as_str),
            _ => &["true"],
        };
        Some((label, nearest(value, values.iter().copied())?))
    });
    (why, meant, None)
}

/// A label without the prefix. Names are compared in this form, because longer text may have more typing errors.
fn local(label: &str) -> &str {
    label.strip_prefix(PREFIX).unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::policy::{Action, PlacementMode};

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    /// The labels that have no effect with a policy that warns.
    fn beside_warn(labels: &BTreeMap<String, String>, overrides: NamespaceOverrides) -> Vec<IgnoredLabel> {
        let policy = Policy {
            name: "base".into(),
            ..Policy::standalone().in_mode(Mode::Warn)
        };
        let in_force = EffectivePolicy {
            policy: &policy,
            overrides,
            is_built_in: false,
        };
        ignored(labels, &in_force)
    }

    #[test]
    fn the_label_changes_the_mode_and_nothing_that_the_policy_says_itself() {
        let mut written = Policy::standalone();
        written.explicit.placement = Some(PlacementMode::Disabled);
        let written = written.in_mode(Mode::Warn);
        for (overrides, label, action) in [
            (NamespaceOverrides::Stricter, "Enforce", Action::Deny),
            (NamespaceOverrides::Stricter, "Audit", Action::Warn),
            (NamespaceOverrides::Any, "Audit", Action::Audit),
            (NamespaceOverrides::None, "Enforce", Action::Warn),
            (NamespaceOverrides::Any, "enforce", Action::Warn),
        ] {
            let mut policy = Cow::Borrowed(&written);
            apply(&mut policy, &labels(&[(MODE_LABEL, label)]), overrides);
            assert_eq!(policy.validation, action, "{overrides:?} {label}");
            assert_eq!(policy.placement, PlacementMode::Disabled, "{overrides:?} {label}");
        }
    }

    #[test]
    fn labels_that_count_or_say_the_same_are_no_problem() {
        use NamespaceOverrides::{Any, None, Stricter};
        for (overrides, pairs) in [
            (Stricter, &[("transom.dev/mode", "Enforce")][..]),
            (Any, &[("transom.dev/mode", "Audit")]),
            (None, &[("transom.dev/mode", "Warn"), ("team", "deny")]),
            (Stricter, &[("transom.dev/ignore", "false")]),
            // It is excluded, as its label says.
            (
                Stricter,
                &[("transom.dev/ignore", "true"), ("transom.dev/mode", "off")],
            ),
            // It belongs to the gMSA webhook.
            (Stricter, &[("windows.k8s.io/disabled", "true")]),
        ] {
            assert_eq!(beside_warn(&labels(pairs), overrides), [], "{pairs:?}");
        }
    }

    #[test]
    fn labels_that_do_nothing_are_named_with_what_may_have_been_meant() {
        for (key, value, why, meant) in [
            (
                MODE_LABEL,
                "enforce",
                "the value is unknown",
                Some((MODE_LABEL, "Enforce")),
            ),
            (
                MODE_LABEL,
                "Enfroce",
                "the value is unknown",
                Some((MODE_LABEL, "Enforce")),
            ),
            (MODE_LABEL, "Strict", "use Audit, Warn, Enforce", None),
            (
                IGNORE_LABEL,
                "yes",
                "only the value true",
                Some((IGNORE_LABEL, "true")),
            ),
            (
                IGNORE_LABEL,
                "True",
                "only the value true",
                Some((IGNORE_LABEL, "true")),
            ),
            (IGNORE_LABEL, "", "only the value true", None),
            (
                "transom.dev/mdoe",
                "Audit",
                "does not know this label",
                Some((MODE_LABEL, "Audit")),
            ),
            (
                "transom.dev/Mode",
                "warn",
                "does not know this label",
                Some((MODE_LABEL, "Warn")),
            ),
            ("transom.dev/mdoe", "Never", "does not know this label", None),
            ("transom.dev/owner", "team-a", "does not know this label", None),
            ("transom.dev/owner", "Audit", "does not know this label", None),
        ] {
            let found = beside_warn(&labels(&[(key, value)]), NamespaceOverrides::Stricter);
            assert_eq!(found.len(), 1, "{key}={value}");
            assert!(found[0].why.contains(why) && found[0].meant == meant, "{found:?}");
        }
        // The label that was probably meant exists already: no message asks to overwrite it.
        let both = labels(&[("transom.dev/mdoe", "Warn"), (MODE_LABEL, "Warn")]);
        let found = beside_warn(&both, NamespaceOverrides::Stricter);
        assert_eq!((found.len(), found[0].meant), (1, None));
    }

    #[test]
    fn labels_that_the_policy_does_not_allow_say_which_policy_and_what_would() {
        let weaker = labels(&[(MODE_LABEL, "Audit")]);
        let found = beside_warn(&weaker, NamespaceOverrides::Stricter);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].why,
            "WindowsPodPolicy base allows labels only to make it stricter (namespaceOverrides: Stricter)"
        );
        assert_eq!(
            found[0].or_else.as_deref(),
            Some("set namespaceOverrides: Any in WindowsPodPolicy base, to make the label effective")
        );
        let found = beside_warn(&labels(&[(MODE_LABEL, "Enforce")]), NamespaceOverrides::None);
        assert!(
            found[0]
                .why
                .ends_with("does not allow labels to change it (namespaceOverrides: None)")
        );
        let stricter = ignored(
            &labels(&[(MODE_LABEL, "Enforce")]),
            &EffectivePolicy {
                policy: &Policy::cluster_default(),
                overrides: NamespaceOverrides::None,
                is_built_in: true,
            },
        );
        assert!(
            stricter.len() == 1 && stricter[0].why.starts_with("no WindowsPodPolicy"),
            "{stricter:?}"
        );
    }
}
