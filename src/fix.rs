//! Writes fixed manifests into their files. `transom_core::fix` edits the texts.

pub(crate) mod write;

pub use transom_core::fix::*;
