//! What takes its time: certificates rotated again and again, leadership passed on, memory held beside a large cluster,
//! faults, and attacks. Without the programs of envtest these tests say so and prove nothing.
#![cfg(unix)]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each binary of tests uses a part of it")]
mod support;

mod certificates;
mod denial_of_service;
mod fault_injection;
mod leadership;
#[cfg(target_os = "linux")]
mod memory;
mod netns;
#[cfg(target_os = "linux")]
mod policies;
mod service;
mod stored;
