//! The reasons why Transom is not ready, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Whether Transom is ready: it is, unless one of its parts holds it back. Clones share the reasons.
///
/// A part that must be ready first holds at start and releases later: `hold("facts", "not listed yet")`.
#[derive(Clone, Default, Debug)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Readiness {
    /// Not ready because of `name`; `why` is for people, in one line. Holding again replaces the reason.
    pub fn hold(&self, name: &'static str, why: impl Into<String>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, why.into());
    }

    /// `name` is no longer a reason.
    pub fn release(&self, name: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Whether no part holds it back.
    pub fn is_ready(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Why Transom is not ready, one `name: why` each, sorted by name; empty when it is.
    pub fn reasons(&self) -> Vec<String> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(name, why)| format!("{name}: {why}")).collect()
    }
}
