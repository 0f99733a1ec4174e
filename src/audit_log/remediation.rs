//! The current state of a workload that was denied, or would have been.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

/// The current state of a workload.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
#[schemars(transform = describe_state)]
pub enum CurrentState {
    /// It exists, and would be denied if it were created again, or with `validation.action: Deny`.
    Open {
        /// The rules that would deny it.
        rules: Vec<String>,
    },
    /// The state is not known.
    Unknown {
        /// Why it is not known.
        reason: String,
    },
    /// It exists, and nothing in it would be denied.
    Fixed,
    /// It does not exist any more, or has finished.
    Gone,
}

/// Describes the tag, for which the type has no field.
fn describe_state(schema: &mut Schema) {
    let states = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    for state in states.into_iter().flatten() {
        if let Some(tag) = state.pointer_mut("/properties/state") {
            tag["description"] = "The current state of the workload.".into();
        }
    }
}

impl CurrentState {
    /// The state as one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            CurrentState::Open { .. } => "open",
            CurrentState::Unknown { .. } => "unknown",
            CurrentState::Fixed => "fixed",
            CurrentState::Gone => "gone",
        }
    }

    /// A state that is not known, for this reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        CurrentState::Unknown {
            reason: reason.into(),
        }
    }

    /// Whether it may still have to be fixed.
    pub fn is_open(&self) -> bool {
        matches!(self, CurrentState::Open { .. } | CurrentState::Unknown { .. })
    }
}
