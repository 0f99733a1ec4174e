//! What to do next about certificates: a pure function of what stands in the Secret, in the webhook configurations, and
//! what is being served.

use std::time::{Duration, SystemTime};

use super::Lifetimes;
use super::store::SecretState;
use super::x509::{Authority, Leaf, Validity};

/// How many CAs survive when nothing works any more: after a clock went back they may be of use again.
const MOST_KEPT: usize = 8;

/// The `caBundle`s of the webhook configurations that exist.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Bundles {
    /// One per configuration. One that does not exist trusts nobody, and cannot be wrong.
    pub configurations: Vec<Configuration>,
}

/// A webhook configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// Its webhooks.
    pub entries: Vec<Entry>,
}

/// One webhook of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name, the key of the list.
    pub name: String,
    /// Its `caBundle`; without one the API server trusts the CAs of its own machine.
    pub bundle: Option<Vec<u8>>,
}

impl Bundles {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.configurations
            .iter()
            .flat_map(|configuration| &configuration.entries)
    }

    /// Every different CA in them.
    fn authorities(&self) -> Vec<Authority> {
        let mut all: Vec<Authority> = Vec::new();
        let mut texts: Vec<&[u8]> = Vec::new();
        for text in self.entries().filter_map(|entry| entry.bundle.as_deref()) {
            if !texts.contains(&text) {
                texts.push(text);
                all.extend(Authority::all(text));
            }
        }
        let mut each = Vec::with_capacity(all.len());
        for authority in all {
            if !each.contains(&authority) {
                each.push(authority);
            }
        }
        each
    }

    /// The first entry by which a certificate is not trusted; `None` where it is trusted by every one.
    pub fn distrusts(&self, leaf: &Leaf, names: &[String], now: SystemTime) -> Option<&Entry> {
        let mut trusted: Vec<&[u8]> = Vec::new();
        self.entries().find(|entry| {
            let text = entry.bundle.as_deref().unwrap_or_default();
            if trusted.contains(&text) {
                return false;
            }
            let trusts = leaf.issuer(&Authority::all(text), names, now).is_some();
            if trusts {
                trusted.push(text);
            }
            !trusts
        })
    }
}

/// Everything that a decision is made by.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The wall clock.
    pub now: SystemTime,
    /// The Secret, where there is one.
    pub secret: Option<&'a SecretState>,
    /// For how long it has been as it is, by a clock that never jumps.
    pub secret_for: Duration,
    /// The webhook configurations.
    pub bundles: &'a Bundles,
    /// For how long they have been as they are, by a clock that never jumps.
    pub bundles_for: Duration,
    /// What this replica serves, unless it is a placeholder.
    pub served: Option<&'a Leaf>,
    /// The names that the serving certificate must have.
    pub names: &'a [String],
    /// How long things last.
    pub lifetimes: &'a Lifetimes,
}

/// The next step; after it, decide again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// All is as it should be, or something must be waited for.
    Nothing {
        /// When to look again at the latest.
        look_again: Duration,
    },
    /// Create the Secret with a new CA and a certificate signed by it.
    CreateSecret {
        /// CAs that are trusted now and still needed.
        keep: Vec<Authority>,
    },
    /// The same in a Secret in which nothing is of use.
    StartOver {
        /// CAs that are trusted now and still needed.
        keep: Vec<Authority>,
    },
    /// Put CAs back into the Secret that are published and needed, and were lost from it.
    TrustAgain {
        /// Which.
        authorities: Vec<Authority>,
    },
    /// Write the Secret's CAs into every entry of the configurations.
    PublishBundle,
    /// Issue a new serving certificate by the CA that signs.
    RenewLeaf,
    /// Make the CA that signs next, so that it is trusted before it is used.
    AddNextCa,
    /// Let the next CA sign, and issue a new serving certificate by it.
    PromoteNextCa,
    /// Trust only the CA that signs, and the next one.
    DropOldCas,
}

impl Action {
    /// What is being done, for the log.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Action::Nothing { .. } => "nothing to do",
            Action::CreateSecret { .. } => "there is no Secret: creates it with a new CA",
            Action::StartOver { .. } => "nothing in the Secret is of use: makes a new CA",
            Action::TrustAgain { .. } => "puts a CA that is still needed back into the Secret",
            Action::PublishBundle => "publishes the CA bundle",
            Action::RenewLeaf => "issues a new serving certificate",
            Action::AddNextCa => "makes the next CA, to be trusted before it is used",
            Action::PromoteNextCa => "issues a new serving certificate by the next CA",
            Action::DropOldCas => "no longer trusts the old CA",
        }
    }
}

/// The next step towards a certificate that every API server trusts, and will go on trusting.
pub fn decide(situation: &Situation<'_>) -> Action {
    let Some(secret) = situation.secret else {
        return Action::CreateSecret {
            keep: situation.lost(None),
        };
    };
    let Situation {
        now,
        names,
        lifetimes,
        bundles,
        bundles_for,
        ..
    } = *situation;
    let lost = situation.lost(Some(secret));
    let (signer, next) = (secret.signer(now), secret.next_signer(now));
    let working = secret
        .leaf
        .as_ref()
        .and_then(|leaf| Some((leaf, leaf.issuer(&secret.trusted, names, now)?)));
    // What works goes first; what is of no use to anybody needs no care.
    match (working, signer, next) {
        _ if !lost.is_empty() && (working.is_some() || signer.is_some() || next.is_some()) => {
            return Action::TrustAgain { authorities: lost };
        }
        // A CA that was lost may be what makes the certificate work.
        (None, None, None) if !lost.is_empty() && situation.mends(secret, &lost) => {
            return Action::TrustAgain { authorities: lost };
        }
        (None, Some(_), _) => return Action::RenewLeaf,
        (None, None, Some(_)) => return Action::PromoteNextCa,
        (None, None, None) => {
            let keep = lost
                .iter()
                .chain(&secret.trusted)
                .take(MOST_KEPT)
                .cloned()
                .collect();
            return Action::StartOver { keep };
        }
        (Some(_), ..) => {}
    }
    let bundle = Authority::bundle(&secret.trusted);
    if bundles
        .entries()
        .any(|entry| entry.bundle.as_deref() != Some(bundle.as_bytes()))
    {
        return Action::PublishBundle;
    }
    let settled = bundles.configurations.is_empty() || bundles_for >= lifetimes.settle;
    match (working, signer, next) {
        (_, _, Some(_)) if settled => Action::PromoteNextCa,
        (_, _, Some(_)) => situation.nothing(None),
        (_, None, None) => Action::AddNextCa,
        (Some((leaf, issuer)), Some((authority, _)), None) => {
            let foreign = issuer != authority;
            if foreign && settled || !foreign && situation.renews(leaf, authority) {
                Action::RenewLeaf
            } else if !foreign && secret.trusted.len() > 1 && situation.is_served(leaf) {
                Action::DropOldCas
            } else if due(authority.validity(), lifetimes.ca, now) {
                Action::AddNextCa
            } else {
                situation.nothing(Some((leaf, authority)))
            }
        }
        // Without a certificate that works it returned above.
        (None, Some(_), None) => Action::RenewLeaf,
    }
}

/// Whether a replica changes over to the certificate in the Secret.
///
/// Not before every API server can be expected to trust it, unless what is served is not trusted either.
pub(super) fn takes_over(situation: &Situation<'_>, offered: &Leaf) -> bool {
    let Situation {
        now,
        names,
        bundles,
        bundles_for,
        lifetimes,
        ..
    } = *situation;
    let Some(served) = situation.served else {
        return true;
    };
    let trusted = |leaf: &Leaf| bundles.distrusts(leaf, names, now).is_none() && leaf.validity().holds(now);
    if bundles.entries().next().is_none() {
        return offered.validity().holds(now) || !served.validity().holds(now);
    }
    if trusted(offered) && bundles_for >= lifetimes.settle {
        return true;
    }
    !trusted(served)
}

/// Whether two thirds are over of a certificate that was to last so long.
fn due(validity: Validity, lasts: Duration, now: SystemTime) -> bool {
    now >= renewal(validity, lasts)
}

fn renewal(validity: Validity, lasts: Duration) -> SystemTime {
    // A certificate of somebody else may last shorter.
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    validity.until - lasts.min(life) / 3
}

impl Situation<'_> {
    /// The CAs that are published and not in the Secret, and by which something works: the certificate in the Secret,
    /// the one that is served, or the signing key.
    fn lost(&self, secret: Option<&SecretState>) -> Vec<Authority> {
        let trusted = secret.map_or(&[][..], |secret| &secret.trusted);
        let leaf = secret.and_then(|secret| secret.leaf.as_ref());
        let signs = secret.filter(|secret| secret.signer(self.now).is_none());
        let signs = signs.and_then(|secret| secret.signs.as_deref());
        let mut lost = self.bundles.authorities();
        lost.retain(|authority| {
            let verifies = |leaf: &Leaf| leaf.is_trusted_by(authority, self.names, self.now);
            !trusted.contains(authority)
                && (leaf.is_some_and(verifies)
                    || self.served.is_some_and(verifies)
                    || signs.is_some_and(|key| authority.is_of(key) && authority.is_valid(self.now)))
        });
        lost
    }

    /// Whether the Secret would work again with these CAs in it.
    fn mends(&self, secret: &SecretState, lost: &[Authority]) -> bool {
        let works = |leaf: &Leaf| leaf.issuer(lost, self.names, self.now).is_some();
        let signs = |authority: &Authority| secret.signs.as_deref().is_some_and(|key| authority.is_of(key));
        secret.leaf.as_ref().is_some_and(works) || lost.iter().any(signs)
    }

    /// Whether it is time for a new certificate, and a new one would last longer.
    fn renews(&self, leaf: &Leaf, authority: &Authority) -> bool {
        let lasts = self.lifetimes.leaf;
        let new = (self.now + lasts).min(authority.not_after());
        due(leaf.validity(), lasts, self.now) && new > leaf.validity().until + lasts / 10
    }

    /// Whether every replica can be expected to serve this certificate.
    fn is_served(&self, leaf: &Leaf) -> bool {
        self.secret_for >= self.lifetimes.grace && self.served.is_some_and(|served| served.is(leaf))
    }

    /// Waits for whatever comes first.
    fn nothing(&self, works: Option<(&Leaf, &Authority)>) -> Action {
        let Lifetimes {
            ca,
            leaf: lasts,
            settle,
            grace,
            ..
        } = *self.lifetimes;
        let waits = [(settle, self.bundles_for), (grace, self.secret_for)];
        let waits = waits
            .into_iter()
            .filter_map(|(wait, already)| wait.checked_sub(already));
        let ends = works.map(|(leaf, authority)| {
            [
                renewal(leaf.validity(), lasts),
                renewal(authority.validity(), ca),
                leaf.validity().until,
            ]
        });
        let ends = ends
            .into_iter()
            .flatten()
            .filter_map(|time| time.duration_since(self.now).ok());
        // Clocks jump: an hour is the longest that one is believed.
        let most = Duration::from_secs(3_600);
        let least = Duration::from_millis(100);
        let look_again = waits
            .chain(ends)
            .filter(|wait| !wait.is_zero())
            .fold(most, Duration::min);
        Action::Nothing {
            look_again: look_again.max(least),
        }
    }
}
