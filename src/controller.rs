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
pub mod errors;
pub mod facts;
pub mod gauges;
pub mod lease;
pub mod memory;
pub mod nodes;
pub mod policies;
pub mod remember;
pub mod runtime_classes;
pub mod view;
pub mod watches;
