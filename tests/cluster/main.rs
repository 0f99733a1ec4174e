//! What needs a real control plane. Without the programs of envtest in `$KUBEBUILDER_ASSETS` or
//! `/usr/local/kubebuilder/bin` these tests say so and prove nothing.
#![cfg(unix)]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
mod support;

mod absent_class;
mod audit_log;
mod break_glass;
mod bypass;
#[cfg(target_os = "linux")]
mod clocks;
mod coexistence;
mod conformance;
mod crds;
mod drain;
mod drain_promises;
mod existing_cluster;
mod field_names;
mod image_lookups;
mod match_conditions;
mod node_custom_resources;
mod node_pools;
mod nodes;
mod partition;
mod placement;
mod plan;
mod pod_security;
mod pod_template_kinds;
mod prediction_accuracy;
mod preflight;
mod reports;
mod scan;
mod startup;
mod startup_nodes;
mod startup_scenarios;
mod taint_guard;
mod webhook;
