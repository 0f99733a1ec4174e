//! Transom: an admission webhook and policy controller for Windows pods.
pub mod engine;
pub mod manifest;
pub mod model;
pub mod rules;
pub mod webhook;
