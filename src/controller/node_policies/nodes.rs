//! Nodes: what is ours on them, what is to be written, and writing it.

pub mod assess;
mod change;
pub(super) mod fresh;
pub(super) mod names;
pub mod owned;
pub mod plan;
pub mod read;
pub mod take_back;
pub mod write;
