//! The custom resources, group `transom.dev/v1alpha1`: as they are written, and how they become what the engine reads.

mod pod_policy;

pub use pod_policy::{PolicyFileError, read_policies};
