//! The cluster as Transom knows it: the client, the lease, the watches, and the cache that they fill.

pub mod cache;
mod cached_kinds;
pub(crate) mod client;
pub(crate) mod custom_lists;
pub mod environment;
pub(crate) mod errors;
pub(crate) mod facts;
mod json_items;
mod large_objects;
pub mod lease;
pub(crate) mod list;
pub mod node;
pub mod node_ownership;
mod node_selectors;
mod object_stream;
pub(crate) mod offline;
pub mod policy_revisions;
pub(crate) mod policy_store;
pub(crate) mod rate_limit;
pub mod snapshot;
pub(crate) mod snapshot_task;
pub(crate) mod stated_cluster;
pub(crate) mod stored;
pub mod stored_node_policies;
pub(crate) mod stored_node_pools;
#[cfg(test)]
pub(crate) mod test_client;
mod transform;
pub(crate) mod walk;
pub(crate) mod watch;
pub(crate) mod watch_problems;
pub mod watch_staleness;
pub(crate) mod watches;
pub mod webhook_configurations;
pub(crate) mod workload_survey;
