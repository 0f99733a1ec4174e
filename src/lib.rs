//! Transom: an admission webhook and policy controller for Windows pods on Kubernetes.
//!
//! It denies what Windows cannot run, with words that say what to change, and changes Windows pods so that they land
//! where they run. One pure function, [`engine::evaluate`], judges one object; the webhook and the command line only
//! bring objects to it and carry away what it says.
//!
//! ```text
//!  HTTPS body                    file / stdin
//!     │ admission                    │ manifest
//!     ▼                              ▼
//!  request, raw object            document, raw object + positions
//!     └──────────────┬───────────────┘
//!                    ▼
//!         model::object       where the pod template is, a borrowed view of it
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
//! In a cluster the same function is asked about what the watches show: one task turns each view of the cluster into
//! one immutable snapshot, which reviews and controllers read.
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
//! `plan` asks the engine and the tables of the model about an upgrade of Windows nodes that has not happened yet;
//! `scan` judges what is stored, as `controller` does for its reports; `audit_log` adds up what logs of API servers
//! tell.
//!
//! Imports run one way, from left to right; `tests/offline/architecture.rs` checks which module may import which.
//! Nothing under `model`, `rules` or `engine` is async, reads a clock, a file, the environment or the network.

pub mod admission;
pub mod api;
pub mod audit_log;
pub mod certs;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod engine;
pub mod fix;
pub mod image_report;
pub mod manifest;
pub mod model;
pub mod plan;
pub mod preflight;
pub mod process;
pub mod registration;
pub mod registry;
pub mod render;
pub mod rules;
pub mod scan;
mod serve;
pub mod tls;
pub mod webhook;
