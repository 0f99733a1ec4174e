//! The usable content of the Secret; `store` reads and writes the object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::ByteString;
use rcgen::KeyPair;

use super::ca::CaCertificate;
use crate::tls::identity::Identity;

/// Every trusted CA, in PEM: what is published as `caBundle`.
pub(super) const CA_CERTIFICATES: &str = "ca.crt";
/// The key of the CA that signs; it matches one of [`CA_CERTIFICATES`].
pub(super) const CA_KEY: &str = "ca.key";
/// The key of the CA that signs next, during a rotation.
pub(super) const NEXT_CA_KEY: &str = "next-ca.key";
/// The serving certificate.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// Its key.
pub(super) const KEY: &str = "tls.key";

/// The usable content of the Secret. Unreadable values are treated as missing.
#[derive(Clone, Default, Debug)]
pub(super) struct SecretState {
    pub(super) trusted: Vec<CaCertificate>,
    pub(super) signs: Option<Arc<KeyPair>>,
    pub(super) signs_next: Option<Arc<KeyPair>>,
    /// The serving certificate, if it and its key are usable.
    pub(super) leaf: Option<Identity>,
}

impl SecretState {
    /// Reads the `data` of the Secret.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let get = |key| data.get(key).map_or(&[][..], |value| &value.0);
        let key = |name| {
            let text = std::str::from_utf8(get(name)).ok()?;
            KeyPair::from_pem(text).ok().map(Arc::new)
        };
        SecretState {
            trusted: CaCertificate::all(get(CA_CERTIFICATES)),
            signs: key(CA_KEY),
            signs_next: key(NEXT_CA_KEY),
            leaf: Identity::from_pem(get(CERTIFICATE), get(KEY)).ok(),
        }
    }

    /// The CA that signs, with its key.
    pub(super) fn signer(&self, now: SystemTime) -> Option<(&CaCertificate, &KeyPair)> {
        self.owner(self.signs.as_deref()?, now)
    }

    /// The CA that signs next, with its key.
    pub(super) fn next_signer(&self, now: SystemTime) -> Option<(&CaCertificate, &KeyPair)> {
        self.owner(self.signs_next.as_deref()?, now)
    }

    fn owner<'a>(&'a self, key: &'a KeyPair, now: SystemTime) -> Option<(&'a CaCertificate, &'a KeyPair)> {
        let mut cas = self.trusted.iter();
        let ca = cas.find(|ca| ca.is_of(key) && ca.validity().holds(now))?;
        Some((ca, key))
    }
}
