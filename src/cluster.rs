//! The cluster as Transom knows it: the client, the lease, the watches, and the view that they keep.

pub mod around;
pub mod client;
pub mod errors;
pub mod facts;
pub mod freshness;
pub mod lease;
pub mod node;
pub mod once;
pub mod pace;
pub mod policies;
pub mod pools;
pub mod revisions;
pub mod snapshot;
pub mod stored;
pub mod survey;
pub mod view;
pub mod walk;
pub mod watches;
