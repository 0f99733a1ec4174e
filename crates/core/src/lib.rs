//! What Transom knows and decides about Windows pods on Kubernetes.
//!
//! Each function is pure. It is given the objects, the state of the cluster and the date, and returns a value. It reads no
//! clock, file, environment variable or network, and starts no thread: `clippy.toml` beside this crate refuses it. CI builds the
//! crate for WebAssembly too, for the playground.
//!
//! ```text
//!  HTTPS body                    text of a file
//!     │ admission                    │ manifest
//!     ▼                              ▼
//!  request, raw object            document, raw object + positions
//!     └──────────────┬───────────────┘
//!                    ▼
//!         model::objects      where the pod template is, a borrowed view of it
//!                    ▼
//!         engine::infer_os    → verdict: Windows, Linux, Unknown or Conflicting, with the evidence
//!                    ▼
//!         engine::evaluate    → edits (placement, removal), findings (rules), each open or resolved
//! ```
//!
//! `check` does this with the texts of a command, and `fix` edits them.
//! `plan` evaluates an upgrade of Windows nodes before it happens, and `drain` decides the steps of one.

pub mod admission;
pub mod check;
pub mod drain;
pub mod engine;
pub mod fix;
pub mod manifest;
pub mod model;
pub mod plan;
pub mod rules;
