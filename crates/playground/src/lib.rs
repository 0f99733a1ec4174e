//! The checks of Transom for a page in a browser: a text becomes findings, a fixed text and the patches of admission.
//!
//! A request and its answer are JSON, so that the page needs no generated code. `exports.rs` is the interface of the module.

mod answer;
mod examples;
#[cfg(target_arch = "wasm32")]
mod exports;
mod pod_patch;

pub use self::answer::answer;
pub use self::examples::{EXAMPLES, Example};
