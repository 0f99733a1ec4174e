//! Credentials by registry.

/// Credentials by registry. Never printed.
#[derive(Clone, Default)]
pub struct Keychain {}

impl Keychain {
    /// No credentials.
    pub fn anonymous() -> Self {
        Keychain::default()
    }
}
