//! Kubernetes objects as they are written, and where their pods are.

pub mod api_fields;
pub mod api_versions;
pub mod debugger;
mod k8s_struct;
pub mod known_claims;
pub mod label_selector;
pub mod managed_fields;
pub mod mirror;
pub mod object;
pub mod object_status;
pub mod pod;
pub mod pod_images;
pub mod policy_kinds;
pub mod requester;
pub mod resources;
pub mod webhook_probe;
pub mod workload;
pub mod workload_name;
