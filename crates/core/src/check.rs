//! Checks manifests: parses each input and reads each object once, collects facts from all objects, then evaluates every
//! object. No output.
//!
//! `manifests.rs` reads texts into documents, `objects.rs` their objects, and `run.rs` evaluates these.

mod ambiguous_names;
mod baseline;
mod checked;
mod document_role;
mod effective_policy;
mod environment;
mod input;
mod manifest_fix;
mod manifest_images;
mod manifests;
mod note;
mod objects;
mod reported;
mod run;
mod scope;
mod skipped;
mod source_lines;
mod suppress;
mod suppression;
mod visit;

pub use self::baseline::{
    BASELINE_SCHEMA, Baseline, BaselineEntry, BaselineFile, BaselineWriter, unknown_rule,
};
pub use self::checked::{Checked, FindingDetail};
pub use self::effective_policy::PolicyChoice;
pub use self::environment::{CheckEnvironment, CheckJob, SingleThread};
pub use self::input::{CheckInput, SourceRole};
pub use self::manifest_fix::{FixRules, FixScope, PlannedEdit, PlannedFix};
pub use self::manifest_images::{CheckedImage, ImageCounts};
pub use self::manifests::{CheckSettings, Manifests};
pub use self::note::{CheckNote, NoteLevel, UnreadableInput};
pub use self::objects::ManifestObjects;
pub use self::reported::ReportedFinding;
pub use self::run::CheckOutcome;
pub use self::scope::{Scope, StatedSystems};
pub use self::skipped::{SkippedDocuments, SkippedForWindows};
pub use self::source_lines::SourceLines;
pub use self::suppression::{SUPPRESS_ANNOTATION, SuppressedBy, SuppressedFinding, Suppression};
pub use self::visit::PolicyDocument;

#[cfg(test)]
mod tests;
