//! Fixes manifests: turns planned changes of objects into edits of their texts, and verifies every edited text.

pub mod diff;
mod inputs;
pub mod kustomize;
mod rewrite;
mod text_edit;
pub mod write;

pub use self::inputs::{
    FixedChange, FixedFinding, FixedInputs, FixedObject, FixedText, RemainingFinding, fix,
};
pub use self::rewrite::{Rewritten, line_and_column, replacements_of, rewrite};
pub use self::text_edit::{Refusal, RefusedField, Replacement};

#[cfg(test)]
mod tests;
