//! Shared test support: programs as child processes, objects, and reference models.

#[cfg(unix)]
pub mod collector;
pub mod command;
#[cfg(unix)]
pub mod control_plane;
pub mod dice;
#[cfg(unix)]
pub mod faulty_proxy;
pub mod gate;
pub mod harmless;
#[cfg(unix)]
pub mod hostile_registry;
#[cfg(unix)]
pub mod http;
#[cfg(unix)]
pub mod install;
#[cfg(unix)]
pub mod kubelet;
pub mod objects;
#[cfg(unix)]
pub mod partition;
#[cfg(target_os = "linux")]
pub mod process_memory;
#[cfg(unix)]
pub mod proxy;
pub mod pulling_kubelet;
#[cfg(unix)]
pub mod recorder;
#[cfg(unix)]
pub mod registry;
pub mod schedule;
pub mod server;
pub mod skipped;
#[cfg(unix)]
pub mod world;
