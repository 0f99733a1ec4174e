//! The engine: one pure function that evaluates one object. It uses no clock, no file, no network and no async code.

mod action_reason;
mod admission_additions;
mod evaluate;
pub mod exemption;
mod field_removal;
pub mod manifest_edits;
mod mutation;
pub mod namespace_exclusion;
pub mod namespace_labels;
pub mod namespace_selector;
mod node_findings;
mod os_inference;
mod placement;
mod pod_patch;
pub mod policy_set;
pub mod ratchet;
pub mod scheduling;
pub mod taint_change;

pub use action_reason::action_reason;
pub use evaluate::{Decision, Evaluation, evaluate, evaluate_as, evaluate_each};
pub use node_findings::{NodeFinding, node_findings, runtime_class_findings};
pub use os_inference::infer_os;
pub use scheduling::{AdmissionStage, PodsToSchedule};
pub use taint_change::TaintChange;
