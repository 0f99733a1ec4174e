//! The engine: one pure function that judges one object. No clock, no file, no network, nothing async.

mod because;
mod changes;
mod draft;
pub mod effective;
pub mod exemption;
mod inspect;
pub mod namespace_labels;
mod os;
mod placement;
pub mod ratchet;
mod repair;
pub mod scheduling;

pub use because::because;
pub use inspect::{Decision, Inspection, inspect};
pub use os::infer;
pub use scheduling::{Admission, untolerated};
