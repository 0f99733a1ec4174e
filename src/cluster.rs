//! The cluster as Transom knows it: the client, the lease, the watches, and the view that they keep.

pub mod cache;
pub mod client;
pub mod custom_lists;
pub mod environment;
pub mod errors;
pub mod facts;
pub mod follow;
pub mod lease;
pub mod list;
pub mod node;
pub mod node_ownership;
mod node_selectors;
pub mod offline;
pub mod policy_store;
pub mod pool_history;
pub mod rate_limit;
pub mod revisions;
pub mod snapshot;
pub mod snapshot_task;
pub mod stored;
#[cfg(test)]
pub(crate) mod test_client;
pub mod walk;
pub mod watch_staleness;
pub mod watches;
pub mod webhook_configurations;
pub mod workload_survey;
