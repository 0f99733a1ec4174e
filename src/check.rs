//! Checks manifests: reads each input and each object once, collects facts from all objects, then evaluates every object.
//! No output.
//!
//! `manifests.rs` reads texts into documents, `objects.rs` their objects, and `run.rs` evaluates these.

mod ambiguous_names;
mod baseline;
mod checked;
mod config;
mod document_file;
mod document_role;
mod effective_policy;
pub(crate) mod files;
mod input;
mod knowledge_file;
mod manifest_fix;
mod manifest_images;
mod manifests;
mod note;
mod objects;
mod parallel;
mod policies;
pub mod policy_tests;
mod rendered;
mod repository;
mod run;
mod scope;
mod skipped;
mod source_lines;
mod suppress;
mod suppression;
mod visit;

pub use self::baseline::{BASELINE_SCHEMA, Baseline, BaselineEntry, BaselineWriter};
pub use self::checked::{Checked, FindingDetail};
pub use self::config::{CONFIG_FILE, CheckConfig, ConfigFailOn, ConfigOs, KubernetesVersion, find_config};
pub use self::document_file::DocumentFileError;
pub use self::effective_policy::PolicyChoice;
pub use self::input::{CheckInput, SourceRole};
pub use self::knowledge_file::{KnowledgeLoadError, read_knowledge};
pub use self::manifest_fix::{FixRules, FixScope, PlannedEdit, PlannedFix};
pub use self::manifest_images::{CheckedImage, ImageCounts};
pub use self::manifests::{CheckSettings, Manifests};
pub use self::note::{CheckNote, NoteLevel, UnreadableInput};
pub use self::objects::ManifestObjects;
pub use self::repository::Repository;
pub use self::run::CheckOutcome;
pub use self::scope::{Scope, StatedSystems};
pub use self::skipped::{SkippedDocuments, SkippedForWindows};
pub use self::source_lines::SourceLines;
pub use self::suppression::{SUPPRESS_ANNOTATION, SuppressedBy, SuppressedFinding, Suppression};

#[cfg(test)]
mod tests;
