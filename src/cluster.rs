//! The cluster as Transom knows it: the client, the lease, the watches, and the cache that they fill.

pub mod cache;
mod cached_kinds;
pub mod client;
pub mod custom_lists;
pub mod environment;
pub mod errors;
pub mod facts;
mod json_items;
mod large_objects;
pub mod lease;
pub mod list;
pub mod node;
pub mod node_ownership;
pub mod node_policies;
pub mod node_pools;
mod node_selectors;
mod object_stream;
pub mod offline;
pub mod policy_store;
pub mod rate_limit;
pub mod revisions;
pub mod snapshot;
pub mod snapshot_task;
pub mod stored;
#[cfg(test)]
pub(crate) mod test_client;
mod transform;
pub mod walk;
pub mod watch;
pub mod watch_problems;
pub mod watch_staleness;
pub mod watches;
pub mod webhook_configurations;
pub mod workload_survey;
