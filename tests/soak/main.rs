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
#[cfg(target_os = "linux")]
mod tenant_objects;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Ends when it is dropped.
struct Turn<G> {
    _guard: G,
}

/// For tests that hold an answer to a time, or that attack: nothing else of this program runs beside them.
fn alone() -> Turn<RwLockWriteGuard<'static, ()>> {
    Turn {
        _guard: TURN.write().unwrap_or_else(PoisonError::into_inner),
    }
}

/// For tests that mostly wait: they wait at once.
fn beside_others() -> Turn<RwLockReadGuard<'static, ()>> {
    Turn {
        _guard: TURN.read().unwrap_or_else(PoisonError::into_inner),
    }
}
