//! The ratchet: an update is evaluated by what it makes worse, not by what existed before.

use std::collections::HashMap;

use super::evaluate::Evaluation;
use crate::model::cluster::policy::Action;
use crate::model::cluster::severity::Severity;
use crate::model::objects::workload::Kind;
use crate::rules::Finding;

/// The most that a finding does if the old object had it already: a warning, or nothing visible if the object is a pod,
/// which can no longer be fixed.
fn most_of_known(kind: Kind) -> Action {
    if kind == Kind::Pod {
        Action::Audit
    } else {
        Action::Warn
    }
}

/// Whether the evaluation of the old object matters: whether an open finding would do less if it were known.
pub fn needs_old(kind: Kind, new: &Evaluation) -> bool {
    let most = most_of_known(kind);
    new.open()
        .any(|finding| finding.action.max(finding.enforced_action) > most)
}

/// Limits the actions of findings that the old object had already.
///
/// A finding is identified by its rule and its path with container, volume and port names, so reordering a list
/// introduces nothing. It is known only if it had at least the same severity and action before: if a tag was advice and
/// becomes an error, the update introduces the error.
pub fn downgrade_existing(kind: Kind, new: &mut Evaluation, old: &Evaluation) {
    let most = most_of_known(kind);
    let known = KnownFindings::of(old);
    for finding in &mut new.findings {
        if represented(finding).all(|it| known.has(it)) {
            finding.limit_action(most);
        }
    }
}

/// Limits every finding to a warning.
pub fn downgrade_all(evaluation: &mut Evaluation) {
    for finding in &mut evaluation.findings {
        finding.limit_action(Action::Warn);
    }
}

/// The identity of a finding, its severity, and its action if `validation` is Deny.
type WeighedFinding = (u64, Severity, Action);

/// The findings that a finding represents: itself, or those beyond the limit.
fn represented(finding: &Finding) -> impl Iterator<Item = WeighedFinding> {
    let own = (finding.over_limit.is_empty())
        .then(|| (finding.identity_hash(), finding.severity, finding.enforced_action));
    own.into_iter().chain(finding.over_limit.iter().copied())
}

/// The highest severity and action of each finding of the old object, by its identity.
struct KnownFindings(HashMap<u64, (Severity, Action)>);

impl KnownFindings {
    fn of(old: &Evaluation) -> Self {
        let mut known = HashMap::new();
        for (identity, severity, action) in old.findings.iter().flat_map(represented) {
            let highest = known.entry(identity).or_insert((severity, action));
            *highest = (highest.0.max(severity), highest.1.max(action));
        }
        KnownFindings(known)
    }

    /// Whether the old object had this finding with at least the same severity and action.
    fn has(&self, (identity, severity, action): WeighedFinding) -> bool {
        let old = self.0.get(&identity);
        old.is_some_and(|old| old.0 >= severity && old.1 >= action)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::{Decision, evaluate};
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::{IgnoredFields, Policy};
    use crate::model::objects::object::{Object, ReviewStage};
    use crate::rules::MOST_OF_A_RULE;

    fn evaluation(kind: Kind, spec: &Value, policy: &Policy) -> Evaluation {
        let mut spec = spec.clone();
        spec["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
        let object = match kind {
            Kind::Pod => json!({ "spec": spec }),
            _ => json!({"spec": {"template": {"spec": spec}}}),
        };
        let json = object.to_string();
        let subject = Object::parse(kind, &json, ReviewStage::Stored).unwrap();
        evaluate(&subject, &Facts::new(36, date(2026, 1, 1)), policy)
    }

    /// The decision for an update of a Deployment.
    fn update(old: &Value, new: &Value, policy: &Policy) -> Decision {
        let old = evaluation(Kind::Deployment, old, policy);
        let mut new = evaluation(Kind::Deployment, new, policy);
        downgrade_existing(Kind::Deployment, &mut new, &old);
        new.decision()
    }

    #[test]
    fn the_old_object_matters_only_if_a_finding_would_do_less() {
        let image = |image: &str| json!({"containers": [{"name": "web", "image": image}]});
        let policy = Policy::standalone();
        for (kind, spec, expected) in [
            (
                Kind::Deployment,
                image("mcr.microsoft.com/windows/servercore:latest"),
                true,
            ),
            (
                Kind::Pod,
                image("mcr.microsoft.com/windows/servercore:latest"),
                true,
            ),
            (Kind::Deployment, image("registry.example.com/app"), false),
        ] {
            let evaluation = evaluation(kind, &spec, &policy);
            assert!(evaluation.open().next().is_some(), "{kind} {spec}");
            assert_eq!(needs_old(kind, &evaluation), expected, "{kind} {spec}");
        }
    }

    #[test]
    fn what_becomes_worse_is_introduced_by_the_update() {
        let image = |image: &str| json!({"containers": [{"name": "web", "image": image}]});
        let (advice, error) = (
            image("registry.example.com/app"),
            image("mcr.microsoft.com/windows/servercore:latest"),
        );
        let policy = Policy::standalone();
        for (old, new, expected) in [
            (&advice, &error, Decision::Deny),
            (&error, &error, Decision::Allow),
            (&error, &advice, Decision::Allow),
            (&advice, &advice, Decision::Allow),
        ] {
            assert_eq!(update(old, new, &policy), expected, "{old} -> {new}");
        }
    }

    #[test]
    fn what_does_more_than_before_is_introduced_by_the_update() {
        // Windows ignores it, until `spec.os` makes the API server reject it.
        let pod = |os: Value| json!({"os": os, "securityContext": {"fsGroup": 0}, "containers": [{"name": "web", "image": "web:1"}]});
        let (ignored, refused) = (pod(Value::Null), pod(json!({"name": "windows"})));
        let policy = Policy {
            ignored_fields: IgnoredFields::Warn,
            ..Policy::standalone()
        };
        assert_eq!(update(&ignored, &ignored, &policy), Decision::Allow);
        assert_eq!(update(&refused, &refused, &policy), Decision::Allow);
        assert_eq!(update(&ignored, &refused, &policy), Decision::Deny);
    }

    #[test]
    fn a_new_finding_is_not_hidden_among_many_that_are_known() {
        let many = MOST_OF_A_RULE + 50;
        let container =
            |name: String| json!({"name": name, "image": "web:1", "securityContext": {"privileged": true}});
        let all: Vec<Value> = (0..many).map(|n| container(format!("c{n}"))).collect();
        let spec = |containers: &[Value]| json!({ "containers": containers });
        let old = spec(&all);
        let policy = Policy::standalone();
        let mut reordered = all.clone();
        reordered.reverse();
        for better in [
            spec(&all),
            spec(&reordered),
            spec(&all[10..]),
            spec(&all[..many - 10]),
        ] {
            assert_eq!(update(&old, &better, &policy), Decision::Allow);
        }
        for at in [0, MOST_OF_A_RULE, many] {
            let mut more = all.clone();
            more.insert(at, container("new".to_owned()));
            assert_eq!(update(&old, &spec(&more), &policy), Decision::Deny, "{at}");
        }
        let mut swapped = all.clone();
        swapped[many - 1] = container("new".to_owned());
        assert_eq!(update(&old, &spec(&swapped), &policy), Decision::Deny);
    }
}
