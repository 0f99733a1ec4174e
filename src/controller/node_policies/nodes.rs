//! One node: what on it is ours, what is to be written, and writing it.

mod change;
pub(super) mod fresh;
pub mod labels;
pub mod owned;
pub mod plan;
pub mod write;
