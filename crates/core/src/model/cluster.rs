//! What is known about a cluster, and what its policies say.

pub mod config;
pub mod facts;
pub mod feature_gates;
pub mod network_policy_engine;
pub mod policy;
pub mod severity;
