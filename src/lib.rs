//! Transom: an admission webhook and policy controller for Windows pods on Kubernetes.
//!
//! It denies pods that Windows cannot run, with messages that name the fix, and changes Windows pods so that they are
//! scheduled on nodes that can run them. One pure function, [`engine::evaluate`], evaluates one object; the webhook and
//! the command line pass objects to it and use its result.
//!
//! ```text
//!  HTTPS body                    file / stdin
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
//!                    ▼
//!     ┌──────────────┴──────────────┐
//!     ▼                             ▼
//!  admission (answer)            render (report)
//! ```
//!
//! In a cluster, one task builds an immutable snapshot from each state of the watch cache; reviews and controllers read
//! it.
//!
//! ```text
//!  main ─ cli ─ serve ─┬─ webhook ─────────────── admission ─┐
//!           │          ├─ controller ─┐                      ├─ engine ─ rules ─ model
//!           │          ├─ certs ──────┴─ cluster ─ api ──────┤
//!           │          │                  registration ──────┤
//!           └─ preflight ─ render ─┬─ check ─ manifest, api ─┤
//!                                  ├─ plan ──────────────────┤
//!                                  ├─ scan ─ cluster, admission
//!                                  └─ audit_log ─ model                  below: tls ─ process
//! ```
//!
//! `plan` evaluates an upgrade of Windows nodes before it happens, and `drain` decides the steps of one; `scan` evaluates stored objects, as `controller` does
//! for its reports; `audit_log` counts the events in audit logs of API servers.
//!
//! Imports run one way, from left to right; `tests/offline/architecture.rs` checks which module may import which.
//! What needs no clock, no file and no network is the crate `transom_core`; its modules are used by their names here.

// A full disk or a closed pipe would be a panic.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub use transom_core::{admission, drain, engine, manifest, model, plan, rules};

pub mod api;
pub(crate) mod audit_log;
pub mod certs;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod fix;
pub(crate) mod image_report;
pub mod preflight;
pub mod process;
pub mod registration;
pub mod registry;
pub mod render;
pub mod scan;
mod serve;
pub mod tls;
pub mod webhook;
