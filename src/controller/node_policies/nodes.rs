//! One node: what on it is ours, what is to be written, and writing it.

pub mod apply;
pub(super) mod assumed;
pub mod labels;
pub mod ownership;
mod patch;
pub mod plan;
