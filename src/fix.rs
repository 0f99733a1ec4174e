//! Fixes manifests: turns planned changes of objects into edits of their texts, and verifies every edited text.

pub(crate) mod diff;
mod inputs;
mod notation;
mod refusal;
mod replacement;
mod rewrite;
mod text_edit;
pub(crate) mod write;

pub use self::inputs::{
    FixedChange, FixedFinding, FixedInputs, FixedObject, FixedText, RemainingFinding, fix,
};
pub use self::refusal::{Refusal, RefusedField};

#[cfg(test)]
mod tests;
