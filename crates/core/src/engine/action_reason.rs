//! Why a finding's action differs from that of its severity.

use crate::model::cluster::policy::{Action, BUILT_IN, IgnoredFields, Policy};
use crate::model::objects::object::Object;
use crate::model::objects::requester::Origin;
use crate::rules::Finding;

/// Why a finding's action differs from that of its severity; `None` if it does not, and for objects that admission does
/// not act on. `file`: the file that sets the action of the rule in place of the policy.
pub fn action_reason(
    finding: &Finding,
    subject: &Object<'_>,
    policy: &Policy,
    file: Option<&str>,
) -> Option<String> {
    let usual = Action::of_severity(finding.severity);
    if finding.action == usual || !subject.kind.has_pod() {
        return None;
    }
    let Policy { name, validation, .. } = policy;
    let rule = finding.rule.name;
    let by_rule = policy.rule_action(finding.rule.id, finding.severity, finding.rule.since);
    let why = if finding.enforced_action > finding.action && name == BUILT_IN {
        "no known WindowsPodPolicy applies".to_owned()
    } else if finding.enforced_action > finding.action {
        format!("the policy {name} limits actions to {}", validation.as_str())
    } else if by_rule == finding.enforced_action {
        let by = file.map_or_else(|| format!("the policy {name}"), str::to_owned);
        format!("{by} sets {rule} to {}", by_rule.as_str())
    } else if subject.context.is_mirror {
        "a mirror pod runs regardless of admission".to_owned()
    } else if subject.context.origin == Origin::Controller && !finding.class.cannot_run() {
        "its owner's controller is assumed to have created it, and the owner was evaluated".to_owned()
    } else if finding.path.is_unknown() {
        "the API server drops the field before admission, unless the client requests a rejection, as kubectl does".to_owned()
    } else if subject.is_written_by_kubectl(&finding.path) {
        "a profile of kubectl debug sets the field".to_owned()
    } else if policy.ignored_fields == IgnoredFields::Remove {
        "Windows ignores the field, and it stays because Pod Security may require it".to_owned()
    } else {
        let word = policy.ignored_fields.as_str();
        format!("Windows ignores the field, and validation.ignoredFields of the policy {name} is {word}")
    };
    Some(format!(
        "{} instead of {}: {why}",
        finding.action.as_str(),
        usual.as_str()
    ))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::engine::evaluate;
    use crate::model::cluster::facts::Facts;
    use crate::model::objects::object::{ReviewContext, ReviewStage};
    use crate::model::objects::workload::Kind;

    #[test]
    fn without_a_policy_the_reason_is_that_there_is_none() {
        let json = json!({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
            "containers": [{"name": "web", "image": "a"}]}});
        let json = json.to_string();
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
        let why = |policy: &Policy| {
            let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
            let findings = evaluate(&subject, &facts, policy).findings;
            let found = findings.iter().find(|found| found.rule.name == "host-pid");
            action_reason(found.unwrap(), &subject, policy, None).unwrap()
        };
        let mut policy = Policy::cluster_default();
        assert_eq!(
            why(&policy),
            "Audit instead of Deny: no known WindowsPodPolicy applies"
        );
        policy.name = "mine".to_owned();
        assert_eq!(
            why(&policy),
            "Audit instead of Deny: the policy mine limits actions to Audit"
        );
    }

    #[test]
    fn a_field_that_is_let_be_names_the_word_of_the_policy_that_lets_it_be() {
        let policy = Policy {
            ignored_fields: IgnoredFields::Warn,
            ..Policy::standalone()
        };
        let spec = json!({"nodeName": "win-1", "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "web", "image": "registry.example.com/web:1",
                "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "web"}}}]});
        let deployment = json!({"spec": {"template": {"spec": spec}}});
        let debugger = json!({"spec": spec,
            "metadata": {"name": "node-debugger-win-1-x7k2p",
                "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}}});
        let by_policy = format!(
            "Windows ignores the field, and validation.ignoredFields of the policy {} is Warn",
            policy.name
        );
        for (kind, object, expected) in [
            (Kind::Deployment, deployment, by_policy.as_str()),
            (Kind::Pod, debugger, "a profile of kubectl debug sets the field"),
        ] {
            let json = object.to_string();
            let read = Object::parse(kind, &json, ReviewStage::Written).unwrap();
            let context = ReviewContext {
                debugger: read.debugger(None),
                ..read.context
            };
            let subject = Object { context, ..read };
            let evaluation = evaluate(
                &subject,
                &Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
                &policy,
            );
            let found = evaluation
                .findings
                .iter()
                .find(|found| found.rule.name == "seccomp-profile");
            let why = action_reason(found.unwrap(), &subject, &policy, None);
            assert_eq!(why, Some(format!("Warn instead of Deny: {expected}")), "{kind}");
        }
    }
}
