//! What Transom does in a cluster beside answering reviews: it learns the cluster, and keeps true what is its own.
//!
//! ```text
//! watches ─ view (one picture of the cluster, trimmed) ─┬─ facts (what reviews are judged by)
//!                                                       └─ nodes, runtime_classes, policies, … (the leader's writes)
//! ```
//!
//! Every decision is a pure function of the view; a thin loop beside it carries it out. Only the leader writes, and
//! every write names the resourceVersion that it was decided on.

pub mod cleanup;
pub mod conditions;
pub mod keep_revisions;
pub mod node_policies;
pub mod pod_policies;
pub mod pool_history;
pub mod reports;
pub mod webhook_probe;
