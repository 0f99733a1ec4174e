//! Fixes manifests: turns planned changes of objects into edits of their texts, and verifies every edited text.

pub mod diff;
mod inputs;
mod notation;
mod refusal;
mod replacement;
mod rewrite;
mod text_edit;

pub use self::inputs::{
    FixedChange, FixedFinding, FixedInputs, FixedObject, FixedText, RemainingFinding, fix,
};
pub use self::refusal::{Refusal, RefusedField};
pub use self::replacement::Replacement;

#[cfg(test)]
mod tests;
