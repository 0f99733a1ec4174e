//! What needs no API server: the library, the program as a child process, and the documentation. A browser and a registry
//! are used where they are installed; otherwise their tests say so and prove nothing.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
mod support;

mod api_faults;
mod api_fields;
mod architecture;
mod author_tools;
mod bad_input;
mod baseline;
mod check;
mod config;
mod corpus;
mod demo;
mod docs;
mod fix;
mod fix_settings;
mod image;
mod kubectl;
mod logs;
mod page;
mod playground;
mod pod_fields;
mod policy_tests;
mod properties;
mod publishing;
mod registry;
mod report_schemas;
mod reported_inputs;
mod reviews;
mod rule_examples;
mod suppressions;
mod tracing;
