//! The status of a stored object, as far as several components read it: the phase and the conditions.

use serde::Deserialize;

use super::workload::Kind;
use crate::model::syntax::json::at;
use crate::model::syntax::json_types::{List, Str};

/// The status of an object. Where it is embedded in another view, that view fails to parse if the status does.
#[derive(Deserialize, Debug, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct ObjectStatus<'a> {
    phase: Str<'a>,
    conditions: List<ObjectCondition<'a>>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ObjectCondition<'a> {
    r#type: Str<'a>,
    status: Str<'a>,
    reason: Str<'a>,
    message: Str<'a>,
    #[serde(rename = "lastTransitionTime")]
    last_transition_time: Str<'a>,
}

impl<'a> ObjectStatus<'a> {
    /// The status of an object, given as JSON. A field that is missing, `null` or malformed has its default, so that
    /// it does not cost the other fields.
    pub fn of(json: &'a str) -> Self {
        let status = at(json, &["status"]).unwrap_or_default();
        ObjectStatus {
            phase: field(status, "phase"),
            conditions: field(status, "conditions"),
        }
    }

    /// Whether this condition has the status `True`.
    pub fn is_true(&self, condition: &str) -> bool {
        self.has(condition, "True")
    }

    /// When the status of this condition last changed, as it is written; empty if it does not say that.
    pub fn transition(&self, condition: &str) -> &str {
        let mut conditions = self.conditions.iter();
        let found = conditions.find(|it| it.r#type.as_str() == condition);
        found.map_or("", |found| found.last_transition_time.as_str())
    }

    /// Whether it is a pod whose containers have not started.
    pub fn is_pending(&self) -> bool {
        self.phase.as_str() == "Pending"
    }

    /// The scheduler's message about a pod without a node (`PodScheduled=False`, reason `Unschedulable`).
    pub fn unschedulable(&self) -> Option<&str> {
        let is_it = |it: &&ObjectCondition<'_>| {
            it.r#type.as_str() == "PodScheduled"
                && it.status.as_str() == "False"
                && it.reason.as_str() == "Unschedulable"
        };
        let condition = self.conditions.iter().find(is_it)?;
        Some(condition.message.as_str())
    }

    fn has(&self, condition: &str, status: &str) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| it.r#type.as_str() == condition && it.status.as_str() == status)
    }

    /// Whether it is of an object that runs its pods once, and has ended: a Job, a pod, a run of Argo Workflows or Tekton.
    pub fn has_ended(&self, kind: Kind) -> bool {
        match kind {
            Kind::Job => self.is_true("Complete") || self.is_true("Failed"),
            Kind::Pod => matches!(self.phase.as_str(), "Succeeded" | "Failed"),
            // pkg/apis/workflow/v1alpha1, WorkflowPhase.Completed.
            Kind::Workflow => matches!(self.phase.as_str(), "Succeeded" | "Failed" | "Error"),
            // pkg/apis/pipeline/v1, TaskRun.IsDone: the condition is Unknown while it runs.
            Kind::TaskRun | Kind::PipelineRun => self.is_true("Succeeded") || self.has("Succeeded", "False"),
            _ => false,
        }
    }
}

fn field<'a, T: Deserialize<'a> + Default>(status: &'a str, name: &str) -> T {
    let value = at(status, &[name]).and_then(|value| serde_json::from_str(value).ok());
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(json: &str) -> [bool; 3] {
        let status = ObjectStatus::of(json);
        [Kind::Job, Kind::Pod, Kind::Deployment].map(|kind| status.has_ended(kind))
    }

    #[test]
    fn jobs_end_with_a_condition_and_pods_with_a_phase() {
        for condition in ["Complete", "Failed"] {
            let of = |status: &str| {
                format!(
                    r#"{{"status": {{"conditions": [{{"type": "{condition}", "status": "{status}"}}]}}}}"#
                )
            };
            assert_eq!(ended(&of("True")), [true, false, false], "{condition}");
            assert_eq!(ended(&of("False")), [false; 3], "{condition}");
        }
        for phase in ["Succeeded", "Failed"] {
            let json = format!(r#"{{"status": {{"phase": "{phase}"}}}}"#);
            assert_eq!(ended(&json), [false, true, false], "{phase}");
        }
        for phase in ["Pending", "Running", "Unknown"] {
            let json = format!(r#"{{"status": {{"phase": "{phase}"}}}}"#);
            assert_eq!(ended(&json), [false; 3], "{phase}");
        }
    }

    #[test]
    fn workflows_end_with_a_phase_and_runs_of_tekton_with_a_condition() {
        for (phase, ended) in [
            ("Running", false),
            ("Error", true),
            ("Failed", true),
            ("Succeeded", true),
        ] {
            let json = format!(r#"{{"status": {{"phase": "{phase}"}}}}"#);
            assert_eq!(
                ObjectStatus::of(&json).has_ended(Kind::Workflow),
                ended,
                "{phase}"
            );
        }
        for (status, ended) in [("Unknown", false), ("True", true), ("False", true)] {
            let json =
                format!(r#"{{"status": {{"conditions": [{{"type": "Succeeded", "status": "{status}"}}]}}}}"#);
            for kind in [Kind::TaskRun, Kind::PipelineRun] {
                assert_eq!(ObjectStatus::of(&json).has_ended(kind), ended, "{kind} {status}");
            }
        }
    }

    #[test]
    fn a_condition_is_found_among_others() {
        let json = r#"{"status": {"conditions": [{"type": "PodScheduled", "status": "False"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"#;
        let status = ObjectStatus::of(json);
        assert!(status.is_true("Ready"));
        assert!(!status.is_true("PodScheduled") && !status.is_true("Initialized"));
    }

    #[test]
    fn null_and_missing_fields_have_the_defaults() {
        for json in [
            "",
            "null",
            "{}",
            "[]",
            r#"{"status": null}"#,
            r#"{"status": {}}"#,
            r#"{"status": {"phase": null, "conditions": null}}"#,
            r#"{"status": {"conditions": []}}"#,
            r#"{"status": {"conditions": [{"type": null, "status": null}, {}]}}"#,
        ] {
            assert_eq!(ended(json), [false; 3], "{json}");
            assert!(!ObjectStatus::of(json).is_true("Ready"), "{json}");
        }
        let embedded: ObjectStatus<'_> =
            serde_json::from_str(r#"{"phase": null, "conditions": null}"#).unwrap();
        assert!(!embedded.has_ended(Kind::Pod) && !embedded.is_true("Ready"));
    }

    #[test]
    fn a_field_that_does_not_parse_does_not_cost_the_other() {
        for json in [
            r#"{"status": 7}"#,
            r#"{"status": "Failed"}"#,
            r#"{"status": ["Failed"]}"#,
            r#"{"status": {"phase": {}, "conditions": "Failed"}}"#,
            r#"{"status": {"conditions": [7]}}"#,
            r#"{"status": {"conditions": [{"type": "Failed", "status": true}]}}"#,
            r#"{"status": {"phase": "Failed"#,
        ] {
            let status = ObjectStatus::of(json);
            assert!(!status.has_ended(Kind::Job) && !status.is_true("Ready"), "{json}");
        }
        let phase = r#"{"status": {"phase": "Failed", "conditions": {"Ready": true}}}"#;
        assert_eq!(ended(phase), [false, true, false]);
        let conditions = r#"{"status": {"phase": 7, "conditions": [{"type": "Failed", "status": "True"}]}}"#;
        assert_eq!(ended(conditions), [true, false, false]);
    }
}
