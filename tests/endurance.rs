//! What takes its time: certificates rotated again and again, creates while everything fails, leadership passed on, memory
//! held beside a large cluster. These tests mostly wait, and in one program they wait at once. Without the programs of
//! envtest they say so and prove nothing.
#![cfg(unix)]

#[path = "endurance/certificates.rs"]
mod certificates;
#[path = "support/control_plane.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod control_plane;
#[path = "endurance/faults.rs"]
mod faults;
#[path = "support/install.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod install;
#[path = "endurance/leadership.rs"]
mod leadership;
#[path = "endurance/load.rs"]
mod load;
#[cfg(target_os = "linux")]
#[path = "endurance/memory.rs"]
mod memory;
#[path = "support/netns.rs"]
mod netns;
#[path = "support/service.rs"]
mod service;
