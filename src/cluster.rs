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
pub(crate) mod node_ownership;
pub mod node_policies;
pub(crate) mod node_pools;
mod node_selectors;
mod object_stream;
pub(crate) mod offline;
pub(crate) mod policy_store;
pub(crate) mod rate_limit;
pub mod revisions;
pub mod snapshot;
pub(crate) mod snapshot_task;
pub(crate) mod stated_cluster;
pub(crate) mod stored;
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
