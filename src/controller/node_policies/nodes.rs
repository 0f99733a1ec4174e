//! One node: what Transom owns on it, what to write, and the write.

pub mod apply;
mod desired;
pub mod labels;
mod ownership;
mod patch;
pub mod plan;
mod taints;
