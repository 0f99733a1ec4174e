//! The `caBundle`s of both webhook configurations, and what they make an API server trust.

use std::time::SystemTime;

use super::ca::CaCertificate;
use crate::tls::identity::Identity;

/// The `caBundle`s of the webhook configurations that exist.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Bundles {
    /// The webhooks of each configuration. One that does not exist has none, and cannot be wrong.
    pub(super) configurations: Vec<Vec<WebhookBundle>>,
}

/// The trust settings of one webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WebhookBundle {
    /// The webhook's name, the key of the list.
    pub(super) name: String,
    /// Its `caBundle`; without one the API server trusts the CAs of its own machine.
    pub(super) bundle: Option<Vec<u8>>,
}

impl WebhookBundle {
    pub(super) fn is(&self, bundle: &str) -> bool {
        self.bundle.as_deref() == Some(bundle.as_bytes())
    }
}

impl Bundles {
    pub(super) fn webhooks(&self) -> impl Iterator<Item = &WebhookBundle> {
        self.configurations.iter().flatten()
    }

    /// Every CA in them, without duplicates.
    pub(super) fn cas(&self) -> Vec<CaCertificate> {
        let mut texts: Vec<&[u8]> = Vec::new();
        let mut all: Vec<CaCertificate> = Vec::new();
        for text in self.webhooks().filter_map(|webhook| webhook.bundle.as_deref()) {
            if !texts.contains(&text) {
                texts.push(text);
                for ca in CaCertificate::all(text) {
                    if !all.contains(&ca) {
                        all.push(ca);
                    }
                }
            }
        }
        all
    }

    /// The first webhook that does not trust the served certificate; `None` if all do.
    pub(super) fn distrusts(
        &self,
        served: &Identity,
        names: &[String],
        now: SystemTime,
    ) -> Option<&WebhookBundle> {
        let mut trusted: Vec<&[u8]> = Vec::new();
        self.webhooks().find(|webhook| {
            let text = webhook.bundle.as_deref().unwrap_or_default();
            if trusted.contains(&text) {
                return false;
            }
            let mut cas = CaCertificate::all(text).into_iter();
            let trusts = cas.any(|ca| ca.vouches_for(served, names, now));
            if trusts {
                trusted.push(text);
            }
            !trusts
        })
    }
}
