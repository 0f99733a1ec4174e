//! Decides the next step of certificate rotation: a pure function of the Secret, the webhook configurations, and what
//! is being served.

use std::time::{Duration, SystemTime};

use super::Lifetimes;
use super::bundles::Bundles;
use super::ca::CaCertificate;
use super::secret::SecretState;
use super::served::FormerIdentity;
use crate::tls::identity::{Identity, Validity};

/// How many CAs are kept when none of them works: after a clock was set back they may be valid again.
const MOST_KEPT: usize = 8;

/// The inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotationState<'a> {
    /// The time of the API server, which checks the certificate.
    pub(super) now: SystemTime,
    /// The Secret, if it exists.
    pub(super) secret: Option<&'a SecretState>,
    /// How long it has been unchanged; monotonic time.
    pub(super) secret_for: Duration,
    /// The webhook configurations.
    pub(super) bundles: &'a Bundles,
    /// How long they have been unchanged; monotonic time.
    pub(super) bundles_for: Duration,
    /// What this replica serves, unless it is a placeholder.
    pub(super) served: Option<&'a Identity>,
    /// What this replica served until less than [`Lifetimes::grace`] ago: other replicas may still serve it.
    pub(super) served_before: &'a [FormerIdentity],
    /// The names that the serving certificate must have.
    pub(super) names: &'a [String],
    pub(super) lifetimes: &'a Lifetimes,
}

/// The next step; after it, decide again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RotationAction {
    /// Nothing to do, or something must happen first.
    Nothing {
        /// When to decide again at the latest.
        look_again: Duration,
    },
    /// Create the Secret with a new CA and a certificate signed by it.
    CreateSecret {
        /// CAs that are trusted now and still needed.
        keep: Vec<CaCertificate>,
    },
    /// The same in an existing Secret without usable content.
    StartOver {
        /// CAs that are trusted now and still needed.
        keep: Vec<CaCertificate>,
    },
    /// Restore CAs to the Secret that are published and needed, but missing from it.
    TrustAgain {
        /// The CAs to restore.
        cas: Vec<CaCertificate>,
    },
    /// Write the Secret's CAs into every webhook of the configurations.
    PublishBundle,
    /// Issue a new serving certificate with the CA that signs.
    RenewLeaf,
    /// Create the CA that signs next, so that it is trusted before it is used.
    AddNextCa,
    /// Make the next CA the one that signs, and issue a new serving certificate with it.
    PromoteNextCa,
    /// Trust only the CA that signs, and the next one.
    DropOldCas,
}

impl RotationAction {
    /// A description of the action, for the log.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            RotationAction::Nothing { .. } => "nothing to do",
            RotationAction::CreateSecret { .. } => "there is no Secret: creates it with a new CA",
            RotationAction::StartOver { .. } => "the Secret has no usable content: creates a new CA",
            RotationAction::TrustAgain { .. } => "puts a CA that is still needed back into the Secret",
            RotationAction::PublishBundle => "publishes the CA bundle",
            RotationAction::RenewLeaf => "issues a new serving certificate",
            RotationAction::AddNextCa => "creates the next CA, to be trusted before it is used",
            RotationAction::PromoteNextCa => "issues a new serving certificate from the next CA",
            RotationAction::DropOldCas => "no longer trusts the old CA",
        }
    }
}

/// The next step towards a certificate that every API server trusts, now and later.
///
/// The order of the checks: what is trusted stays trusted; then there is a working certificate; then every webhook
/// has the CAs of the Secret; and only then are certificates and CAs renewed.
pub(super) fn decide(situation: &RotationState<'_>) -> RotationAction {
    let Some(secret) = situation.secret else {
        let keep = situation.lost(None);
        return RotationAction::CreateSecret { keep };
    };
    let now = situation.now;
    let works = situation.works(secret);
    let signer = secret.signer(now).map(|(ca, _)| ca);
    let next = secret.next_signer(now).map(|(ca, _)| ca);

    let lost = situation.lost(Some(secret));
    let is_of_use = works.is_some() || signer.is_some() || next.is_some();
    if !lost.is_empty() && (is_of_use || situation.can_fix(secret, &lost)) {
        return RotationAction::TrustAgain { cas: lost };
    }
    let Some((leaf, issuer)) = works else {
        let all = lost.iter().chain(&secret.trusted);
        return match (signer, next) {
            (Some(_), _) => RotationAction::RenewLeaf,
            (None, Some(_)) => RotationAction::PromoteNextCa,
            (None, None) => RotationAction::StartOver {
                keep: all.take(MOST_KEPT).cloned().collect(),
            },
        };
    };
    let bundle = CaCertificate::bundle(&secret.trusted);
    if !situation.bundles.webhooks().all(|webhook| webhook.is(&bundle)) {
        return RotationAction::PublishBundle;
    }
    let is_settled = situation.is_settled();
    // By every replica, after the grace period.
    let is_served = situation.secret_for >= situation.lifetimes.grace
        && situation.served_before.is_empty()
        && situation.serves(leaf);
    match (signer, next) {
        (_, Some(_)) if is_settled => RotationAction::PromoteNextCa,
        (_, Some(_)) => situation.wait(None),
        (None, None) => RotationAction::AddNextCa,
        // The CA that issued the certificate no longer signs.
        (Some(signer), None) if issuer != signer && is_settled => RotationAction::RenewLeaf,
        (Some(signer), None) if issuer == signer && situation.renews(leaf, signer) => {
            RotationAction::RenewLeaf
        }
        (Some(signer), None) if issuer == signer && secret.trusted.len() > 1 && is_served => {
            RotationAction::DropOldCas
        }
        (Some(signer), None) if now >= renewal(signer.validity(), situation.lifetimes.ca) => {
            RotationAction::AddNextCa
        }
        (Some(signer), None) => situation.wait(Some((leaf, signer))),
    }
}

/// Whether a replica should switch to the certificate in the Secret.
///
/// Not before every API server can be expected to trust it, unless what is served is not trusted either.
pub(super) fn takes_over(situation: &RotationState<'_>, offered: &Identity) -> bool {
    let RotationState {
        now, names, bundles, ..
    } = *situation;
    let Some(served) = situation.served else {
        return true;
    };
    if bundles.webhooks().next().is_none() {
        return offered.validity().holds(now) || !served.validity().holds(now);
    }
    let trusted = |identity: &Identity| {
        identity.validity().holds(now) && bundles.distrusts(identity, names, now).is_none()
    };
    situation.is_settled() && trusted(offered) || !trusted(served)
}

/// The time when two thirds of the lifetime are over; a certificate that Transom did not issue may have a shorter
/// lifetime than `lasts`.
fn renewal(validity: Validity, lasts: Duration) -> SystemTime {
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    validity.until - lasts.min(life) / 3
}

impl RotationState<'_> {
    /// The certificate in the Secret with the CA in the Secret that makes it trusted, if there is one.
    fn works<'s>(&self, secret: &'s SecretState) -> Option<(&'s Identity, &'s CaCertificate)> {
        let leaf = secret.leaf.as_ref()?;
        let mut cas = secret.trusted.iter();
        Some((leaf, cas.find(|ca| ca.vouches_for(leaf, self.names, self.now))?))
    }

    /// Whether every API server can be expected to use the published bundles.
    fn is_settled(&self) -> bool {
        self.bundles.configurations.is_empty() || self.bundles_for >= self.lifetimes.settle
    }

    /// The CAs that are published but missing from the Secret, and on which something depends: the certificate in the
    /// Secret, one that a replica serves, or the signing key.
    fn lost(&self, secret: Option<&SecretState>) -> Vec<CaCertificate> {
        let trusted = secret.map_or(&[][..], |secret| &secret.trusted);
        let leaf = secret.and_then(|secret| secret.leaf.as_ref());
        let signs = secret.filter(|secret| secret.signer(self.now).is_none());
        let signs = signs.and_then(|secret| secret.signs.as_deref());
        let mut lost = self.bundles.cas();
        lost.retain(|ca| {
            let vouches = |identity: &Identity| ca.vouches_for(identity, self.names, self.now);
            !trusted.contains(ca)
                && (leaf.is_some_and(vouches)
                    || self.served.is_some_and(vouches)
                    || self.served_before.iter().any(|former| vouches(&former.identity))
                    || signs.is_some_and(|key| ca.is_of(key) && ca.validity().holds(self.now)))
        });
        lost
    }

    /// Whether the Secret would work again with these CAs in it.
    fn can_fix(&self, secret: &SecretState, lost: &[CaCertificate]) -> bool {
        lost.iter().any(|ca| {
            let vouches = |leaf: &Identity| ca.vouches_for(leaf, self.names, self.now);
            secret.leaf.as_ref().is_some_and(vouches)
                || secret.signs.as_deref().is_some_and(|key| ca.is_of(key))
        })
    }

    /// Whether a new certificate is due and would last longer.
    fn renews(&self, leaf: &Identity, ca: &CaCertificate) -> bool {
        let lasts = self.lifetimes.leaf;
        let new = (self.now + lasts).min(ca.validity().until);
        self.now >= renewal(leaf.validity(), lasts) && new > leaf.validity().until + lasts / 10
    }

    /// Whether this replica serves this certificate.
    pub(super) fn serves(&self, leaf: &Identity) -> bool {
        self.served.is_some_and(|served| served.chain() == leaf.chain())
    }

    /// Waits for the earliest of these times.
    fn wait(&self, works: Option<(&Identity, &CaCertificate)>) -> RotationAction {
        /// Clocks jump, so no wait is longer than this.
        const MOST: Duration = Duration::from_secs(3_600);
        const LEAST: Duration = Duration::from_millis(100);
        let Lifetimes {
            ca: ca_lasts,
            leaf: leaf_lasts,
            settle,
            grace,
            ..
        } = *self.lifetimes;
        let waits = [(settle, self.bundles_for), (grace, self.secret_for)];
        let waits = waits.into_iter();
        let waits = waits.filter_map(|(wait, already)| wait.checked_sub(already));
        let ends = works.map(|(leaf, ca)| {
            [
                renewal(leaf.validity(), leaf_lasts),
                renewal(ca.validity(), ca_lasts),
                leaf.validity().until,
            ]
        });
        let ends = ends.into_iter().flatten();
        let ends = ends.filter_map(|time| time.duration_since(self.now).ok());
        let ahead = waits.chain(ends).filter(|wait| !wait.is_zero());
        RotationAction::Nothing {
            look_again: ahead.fold(MOST, Duration::min).max(LEAST),
        }
    }
}
