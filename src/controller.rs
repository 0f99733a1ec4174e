//! What Transom does in a cluster in addition to reviews: it caches the cluster state, and reconciles its own
//! objects.
//!
//! ```text
//! watches ─ cache (the cluster state, trimmed) ─┬─ facts (input of reviews)
//!                                               └─ nodes, runtime_classes, policies, … (the leader's writes)
//! ```
//!
//! Every decision is a pure function of the snapshot. One loop runs the controllers while this replica leads, and one writer
//! makes their writes, each with the resourceVersion that it is based on.

pub(crate) mod cleanup;
pub(crate) mod conditions;
mod events;
pub mod keep_policy_revisions;
pub mod leader_loop;
pub mod node_policies;
pub(crate) mod node_pools;
pub mod pod_policies;
pub(crate) mod reports;
pub(crate) mod startup;
pub(crate) mod startup_states;
pub(crate) mod webhook_probe;
mod write_overlay;
pub mod writer;
