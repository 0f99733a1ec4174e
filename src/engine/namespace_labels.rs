//! The labels by which a namespace changes what a policy does to it, and those that look like it and do nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::policy::{Action, Policy, Switch};

/// The label that overrides what findings do in a namespace.
pub const VALIDATION_LABEL: &str = "transom.dev/validation";
/// The label that overrides what placement does in a namespace.
pub const PLACEMENT_LABEL: &str = "transom.dev/placement";
/// The label that takes a namespace out.
pub const IGNORE_LABEL: &str = "transom.dev/ignore";
/// The same, as users of the gMSA webhook know it.
pub const DISABLED_LABEL: &str = "windows.k8s.io/disabled";

/// What every label of ours begins with.
const PREFIX: &str = "transom.dev/";
const ACTIONS: [Action; 4] = [Action::Deny, Action::Warn, Action::Audit, Action::Off];
const SWITCHES: [Switch; 3] = [Switch::Apply, Switch::DryRun, Switch::Off];

/// What namespace labels may change of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum NamespaceOverrides {
    /// Nothing.
    None,
    /// They may only make it stricter.
    #[default]
    Stricter,
    /// Anything.
    Any,
}

/// Whether a label takes the namespace out; the API server's selectors ask the same.
pub fn is_out(labels: &BTreeMap<String, String>) -> bool {
    let is_true = |label: &str| labels.get(label).is_some_and(|value| value == "true");
    is_true(IGNORE_LABEL) || is_true(DISABLED_LABEL)
}

/// Lets the labels change the policy, as far as it allows.
pub fn apply(policy: &mut Cow<'_, Policy>, labels: &BTreeMap<String, String>, overrides: NamespaceOverrides) {
    let validation = labels.get(VALIDATION_LABEL).and_then(|value| validation(value));
    let changes = |v: &Action| *v != policy.validation && allows(overrides, *v, policy.validation);
    if let Some(validation) = validation.filter(changes) {
        policy.to_mut().validation = validation;
    }
    let placement = labels.get(PLACEMENT_LABEL).and_then(|value| placement(value));
    let changes = |p: &Switch| *p != policy.placement && allows(overrides, *p, policy.placement);
    if let Some(placement) = placement.filter(changes) {
        policy.to_mut().placement = placement;
    }
}

fn validation(value: &str) -> Option<Action> {
    ACTIONS.into_iter().find(|action| action.as_str() == value)
}

fn placement(value: &str) -> Option<Switch> {
    SWITCHES.into_iter().find(|switch| switch.as_str() == value)
}

/// Whether a label may change what the policy says; it may always say the same.
fn allows<T: Ord + Copy>(overrides: NamespaceOverrides, label: T, policy: T) -> bool {
    label == policy
        || match overrides {
            NamespaceOverrides::None => false,
            NamespaceOverrides::Stricter => label > policy,
            NamespaceOverrides::Any => true,
        }
}

/// The policy that counts in a namespace.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'p> {
    /// What it does.
    pub policy: &'p Policy,
    /// What labels may change of it.
    pub overrides: NamespaceOverrides,
    /// Whether it is the built-in one, because no stored policy selects the namespace.
    pub is_built_in: bool,
}

/// A label of a namespace that does nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ignored {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Whether Transom knows no such label; else it is the value.
    pub is_unknown: bool,
    /// Why it does nothing.
    pub why: String,
    /// The label that may have been meant, with its value.
    pub meant: Option<(&'static str, &'static str)>,
    /// What else would let it count.
    pub or_else: Option<String>,
}

/// The labels that were written for Transom and do nothing in a namespace with this policy. A namespace that is out is
/// out, whatever else it carries.
pub fn ignored(labels: &BTreeMap<String, String>, in_force: &InForce<'_>) -> Vec<Ignored> {
    if is_out(labels) {
        return Vec::new();
    }
    let ours = labels
        .iter()
        .filter(|(key, _)| key.starts_with(PREFIX) || *key == DISABLED_LABEL);
    ours.filter_map(|(key, value)| why_ignored(key, value, labels, in_force))
        .collect()
}

fn why_ignored(
    key: &str,
    value: &str,
    labels: &BTreeMap<String, String>,
    in_force: &InForce<'_>,
) -> Option<Ignored> {
    let InForce {
        policy, overrides, ..
    } = *in_force;
    let mut is_unknown = false;
    let (why, meant, or_else) = match key {
        VALIDATION_LABEL => match validation(value) {
            Some(action) if allows(overrides, action, policy.validation) => return None,
            Some(_) => not_allowed(in_force),
            None => no_such_value(VALIDATION_LABEL, value, &ACTIONS.map(Action::as_str)),
        },
        PLACEMENT_LABEL => match placement(value) {
            Some(switch) if allows(overrides, switch, policy.placement) => return None,
            Some(_) => not_allowed(in_force),
            None => no_such_value(PLACEMENT_LABEL, value, &SWITCHES.map(Switch::as_str)),
        },
        // It says that the namespace is not out, and that is so.
        IGNORE_LABEL | DISABLED_LABEL if value == "false" => return None,
        IGNORE_LABEL => not_true(IGNORE_LABEL, value),
        DISABLED_LABEL => not_true(DISABLED_LABEL, value),
        _ => {
            is_unknown = true;
            no_such_label(key, value, labels)
        }
    };
    Some(Ignored {
        key: key.to_owned(),
        value: value.to_owned(),
        is_unknown,
        why,
        meant,
        or_else,
    })
}

/// Why, what may have been meant, and what else would let it count.
type Reason = (String, Option<(&'static str, &'static str)>, Option<String>);

fn not_allowed(in_force: &InForce<'_>) -> Reason {
    let name = &in_force.policy.name;
    let what = match in_force.overrides {
        NamespaceOverrides::None => "allows no label to change it (namespaceOverrides: None)",
        _ => "allows labels only to make it stricter (namespaceOverrides: Stricter)",
    };
    if in_force.is_built_in {
        let why = format!("no WindowsPodPolicy selects the namespace, and the built-in one {what}");
        let or_else = "write a WindowsPodPolicy that selects it and says namespaceOverrides: Any, to let the label count";
        return (why, None, Some(or_else.to_owned()));
    }
    let why = format!("WindowsPodPolicy {name} {what}");
    let or_else = format!("set namespaceOverrides: Any in WindowsPodPolicy {name}, to let the label count");
    (why, None, Some(or_else))
}

fn no_such_value(key: &'static str, value: &str, known: &[&'static str]) -> Reason {
    let why = format!("there is no such value; there are {}", known.join(", "));
    (why, nearest(value, known).map(|value| (key, value)), None)
}

fn not_true(key: &'static str, value: &str) -> Reason {
    let says_yes = ["true", "yes", "on", "1"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes));
    let why = "only the value true takes a namespace out".to_owned();
    (why, says_yes.then_some((key, "true")), None)
}

fn no_such_label(key: &str, value: &str, labels: &BTreeMap<String, String>) -> Reason {
    let known = [VALIDATION_LABEL, PLACEMENT_LABEL, IGNORE_LABEL];
    let why = format!("Transom knows no such label; there are {}", known.join(", "));
    let meant = nearest(key, &known).filter(|label| !labels.contains_key(*label));
    let meant = meant.and_then(|label| {
        let values: &[&'static str] = match label {
            VALIDATION_LABEL => &ACTIONS.map(Action::as_str),
            PLACEMENT_LABEL => &SWITCHES.map(Switch::as_str),
            _ => &["true"],
        };
        Some((label, nearest(value, values)?))
    });
    (why, meant, None)
}

/// The name that may have been meant: the same in another case, or with a slip or two.
fn nearest(written: &str, known: &[&'static str]) -> Option<&'static str> {
    let local = |text: &str| text.trim_start_matches(PREFIX).to_ascii_lowercase();
    let written = local(written);
    let distance = |name: &&'static str| strsim::damerau_levenshtein(&local(name), &written);
    let best = known.iter().copied().min_by_key(distance)?;
    (distance(&best) <= written.len() / 3).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    /// What does nothing beside a policy that warns and applies.
    fn beside_warn(labels: &BTreeMap<String, String>, overrides: NamespaceOverrides) -> Vec<Ignored> {
        let policy = Policy {
            name: "base".into(),
            validation: Action::Warn,
            ..Policy::standalone()
        };
        let in_force = InForce {
            policy: &policy,
            overrides,
            is_built_in: false,
        };
        ignored(labels, &in_force)
    }

    #[test]
    fn labels_that_count_or_say_the_same_are_no_problem() {
        use NamespaceOverrides::{Any, None, Stricter};
        for (overrides, pairs) in [
            (
                Stricter,
                &[
                    ("transom.dev/validation", "Deny"),
                    ("transom.dev/placement", "Apply"),
                ][..],
            ),
            (
                Any,
                &[
                    ("transom.dev/validation", "Off"),
                    ("transom.dev/placement", "DryRun"),
                ],
            ),
            (None, &[("transom.dev/validation", "Warn"), ("team", "deny")]),
            (
                Stricter,
                &[
                    ("transom.dev/ignore", "false"),
                    ("windows.k8s.io/disabled", "false"),
                ],
            ),
            // It is out, as its label says.
            (
                Stricter,
                &[("transom.dev/ignore", "true"), ("transom.dev/validation", "off")],
            ),
            (
                Stricter,
                &[("windows.k8s.io/disabled", "true"), ("transom.dev/ignore", "no")],
            ),
        ] {
            assert_eq!(beside_warn(&labels(pairs), overrides), [], "{pairs:?}");
        }
    }

    #[test]
    fn labels_that_do_nothing_are_named_with_what_may_have_been_meant() {
        for (key, value, why, meant) in [
            (
                VALIDATION_LABEL,
                "deny",
                "no such value",
                Some((VALIDATION_LABEL, "Deny")),
            ),
            (
                VALIDATION_LABEL,
                "Dney",
                "no such value",
                Some((VALIDATION_LABEL, "Deny")),
            ),
            (
                VALIDATION_LABEL,
                "Strict",
                "there are Deny, Warn, Audit, Off",
                None,
            ),
            (
                PLACEMENT_LABEL,
                "dryrun",
                "there are Apply, DryRun, Off",
                Some((PLACEMENT_LABEL, "DryRun")),
            ),
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
                DISABLED_LABEL,
                "1",
                "only the value true",
                Some((DISABLED_LABEL, "true")),
            ),
            (
                "transom.dev/plaecment",
                "Apply",
                "knows no such label",
                Some((PLACEMENT_LABEL, "Apply")),
            ),
            (
                "transom.dev/Validation",
                "warn",
                "knows no such label",
                Some((VALIDATION_LABEL, "Warn")),
            ),
            ("transom.dev/plaecment", "Never", "knows no such label", None),
            ("transom.dev/owner", "team-a", "knows no such label", None),
        ] {
            let found = beside_warn(&labels(&[(key, value)]), NamespaceOverrides::Stricter);
            assert_eq!(found.len(), 1, "{key}={value}");
            assert!(found[0].why.contains(why) && found[0].meant == meant, "{found:?}");
        }
        // What may have been meant is there already: no message asks to write it over.
        let both = labels(&[("transom.dev/plaecment", "Apply"), (PLACEMENT_LABEL, "Apply")]);
        let found = beside_warn(&both, NamespaceOverrides::Stricter);
        assert_eq!((found.len(), found[0].meant), (1, None));
    }

    #[test]
    fn labels_that_the_policy_does_not_allow_say_which_policy_and_what_would() {
        let weaker = labels(&[(VALIDATION_LABEL, "Audit"), (PLACEMENT_LABEL, "Off")]);
        let found = beside_warn(&weaker, NamespaceOverrides::Stricter);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].why,
            "WindowsPodPolicy base allows labels only to make it stricter (namespaceOverrides: Stricter)"
        );
        assert_eq!(
            found[0].or_else.as_deref(),
            Some("set namespaceOverrides: Any in WindowsPodPolicy base, to let the label count")
        );
        let found = beside_warn(&labels(&[(VALIDATION_LABEL, "Deny")]), NamespaceOverrides::None);
        assert!(
            found[0]
                .why
                .ends_with("allows no label to change it (namespaceOverrides: None)")
        );
        let found = ignored(
            &weaker,
            &InForce {
                policy: &Policy::cluster_default(),
                overrides: NamespaceOverrides::default(),
                is_built_in: true,
            },
        );
        assert!(
            found.len() == 1
                && found[0].key == PLACEMENT_LABEL
                && found[0].why.starts_with("no WindowsPodPolicy"),
            "{found:?}"
        );
    }
}
