//! Scanning: evaluates stored objects as admission would if they were created again. Does no I/O.

pub(crate) mod changes;
mod context;
mod dedup;
mod evaluate;
mod network_objects;
mod nodes;
mod owner_templates;
pub(crate) mod pods;
pub mod report;
mod report_builder;
mod required_taints;
mod result;
mod stored_evaluations;

pub use self::context::{EvalContext, PolicyOverrides};
pub use self::dedup::{DedupKey, dedup_key, dedup_key_of_owned};
pub use self::evaluate::{
    Evaluated, SkipReason, evaluate_object, evaluate_owned_pod, evaluate_stored, images_of_stored,
};
pub use self::network_objects::NetworkObjects;
pub use self::nodes::nodes;
pub use self::owner_templates::{OwnerTemplates, PodDifference};
pub use self::report_builder::{MOST_OWNERS, ReportHeader, Scan, untolerating};
pub use self::required_taints::{LackingTaints, RequiredTaints};
pub use self::result::{
    DenialCause, FindingOutcome, FindingResult, ForeignOwner, OwnerOutcome, OwnerResult, Uid,
};
pub use self::stored_evaluations::{StoredEvaluations, UnreadableObjects};
