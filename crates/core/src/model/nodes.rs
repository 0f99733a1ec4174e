//! Nodes and pools: their labels, taints and resources, and which pods select them.

pub mod extended_resources;
pub mod memory_limits;
pub mod namespace_selector;
pub mod network_plugin;
pub mod node;
pub mod node_affinity;
pub mod node_groups;
pub mod os_selectors;
