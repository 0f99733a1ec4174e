//! The reasons why Transom is not ready, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The readiness of Transom: ready unless a part holds it. Clones share the reasons.
///
/// A part that must be ready first calls `hold("facts", "not listed yet")` at startup and releases later.
#[derive(Clone, Default, Debug)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Readiness {
    /// Makes Transom not ready because of `name`; `why` is one line for people. Holding again replaces the
    /// reason.
    pub fn hold(&self, name: &'static str, why: impl Into<String>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, why.into());
    }

    /// Removes the reason `name`.
    pub fn release(&self, name: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Whether there is no reason.
    pub fn is_ready(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Why Transom is not ready, one `name: why` each, sorted by name; empty if it is ready.
    pub fn reasons(&self) -> Vec<String> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(name, why)| format!("{name}: {why}")).collect()
    }
}
