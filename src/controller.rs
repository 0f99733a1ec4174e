//! What Transom does in a cluster in addition to reviews: it caches the cluster state, and reconciles its own
//! objects.
//!
//! ```text
//! watches ─ cache (the cluster state, trimmed) ─┬─ facts (input of reviews)
//!                                               └─ nodes, runtime_classes, policies, … (the leader's writes)
//! ```
//!
//! Every decision is a pure function of the cache; a thin loop carries it out. Only the leader writes, and every
//! write names the resourceVersion that it is based on.

pub mod cleanup;
pub mod conditions;
mod events;
pub mod keep_revisions;
pub mod leader_loop;
pub mod node_policies;
pub mod pod_policies;
pub mod pool_history;
pub mod reports;
pub mod webhook_probe;
