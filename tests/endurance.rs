//! What takes its time: certificates rotated again and again, leadership passed on, memory held beside a large cluster. These
//! tests mostly wait, and in one program they wait at once. Without the programs of envtest they say so and prove nothing.
#![cfg(unix)]

#[path = "endurance/certificates.rs"]
mod certificates;
#[path = "support/control_plane.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod control_plane;
#[path = "support/install.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod install;
#[path = "endurance/leadership.rs"]
mod leadership;
#[cfg(target_os = "linux")]
#[path = "endurance/memory.rs"]
mod memory;
#[cfg(target_os = "linux")]
#[path = "endurance/policies.rs"]
mod policies;
#[path = "endurance/stored.rs"]
mod stored;
