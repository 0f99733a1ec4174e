//! The changes that each action makes in the Secret; certificates are issued here.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rcgen::{CertifiedIssuer, Issuer, KeyPair, SigningKey};

use super::ca::CaCertificate;
use super::rotation::RotationAction;
use super::secret::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY, NEXT_CA_KEY, SecretState};
use super::{CertsError, Lifetimes};
use crate::tls::identity::Identity;
use crate::tls::issue;

/// New values of the Secret's keys; `None` removes a key, and other keys stay.
pub(super) type SecretChanges = BTreeMap<&'static str, Option<String>>;

/// Names, lifetimes and the time for issuing certificates.
#[derive(Clone, Copy)]
pub(super) struct IssueContext<'a> {
    pub(super) names: &'a [String],
    pub(super) lifetimes: &'a Lifetimes,
    pub(super) now: SystemTime,
}

impl IssueContext<'_> {
    /// Returns the action and its changes in the Secret, or a start over, with the reason, if the content of the
    /// Secret cannot be used for the action. No content, not even a CA that no library here can read, may make this
    /// process fail again and again.
    ///
    /// # Errors
    /// If even a certificate of a new CA cannot be issued.
    pub(super) fn changes_or_start_over(
        self,
        action: RotationAction,
        secret: &SecretState,
    ) -> Result<(RotationAction, SecretChanges, Option<CertsError>), CertsError> {
        let error = match self.changes(&action, secret) {
            Ok(changes) => return Ok((action, changes, None)),
            Err(error) => error,
        };
        if matches!(
            action,
            RotationAction::CreateSecret { .. } | RotationAction::StartOver { .. }
        ) {
            return Err(error);
        }
        let over = RotationAction::StartOver {
            keep: secret.trusted.clone(),
        };
        let changes = self.changes(&over, secret)?;
        Ok((over, changes, Some(error)))
    }

    /// The changes that an action makes in the Secret; empty for an action that does not concern the Secret.
    ///
    /// # Errors
    /// If a certificate cannot be issued.
    pub(super) fn changes(
        self,
        action: &RotationAction,
        secret: &SecretState,
    ) -> Result<SecretChanges, CertsError> {
        let now = self.now;
        let with =
            |more: &[CaCertificate]| Some(CaCertificate::bundle(&[&secret.trusted[..], more].concat()));
        Ok(match action {
            RotationAction::Nothing { .. } | RotationAction::PublishBundle => SecretChanges::new(),
            RotationAction::CreateSecret { keep } | RotationAction::StartOver { keep } => {
                let (ca, issuer) = self.ca()?;
                let mut changes = self.leaf(&ca, &issuer)?;
                let all = [&[ca], &keep[..]].concat();
                changes.insert(CA_CERTIFICATES, Some(CaCertificate::bundle(&all)));
                changes.insert(CA_KEY, Some(issuer.key().serialize_pem()));
                changes.insert(NEXT_CA_KEY, None);
                changes
            }
            RotationAction::TrustAgain { cas } => SecretChanges::from([(CA_CERTIFICATES, with(cas))]),
            RotationAction::RenewLeaf => match secret.signer(now) {
                Some((ca, key)) => self.leaf(ca, &self.issuer(ca, key)?)?,
                None => SecretChanges::new(),
            },
            RotationAction::AddNextCa => {
                let (ca, issuer) = self.ca()?;
                let key = issuer.key().serialize_pem();
                SecretChanges::from([(CA_CERTIFICATES, with(&[ca])), (NEXT_CA_KEY, Some(key))])
            }
            RotationAction::PromoteNextCa => match secret.next_signer(now) {
                Some((ca, key)) => {
                    let mut changes = self.leaf(ca, &self.issuer(ca, key)?)?;
                    changes.insert(CA_KEY, Some(key.serialize_pem()));
                    changes.insert(NEXT_CA_KEY, None);
                    changes
                }
                None => SecretChanges::new(),
            },
            RotationAction::DropOldCas => {
                let keep = [secret.signer(now), secret.next_signer(now)];
                let keep: Vec<_> = keep.into_iter().flatten().map(|(ca, _)| ca.clone()).collect();
                SecretChanges::from([(CA_CERTIFICATES, Some(CaCertificate::bundle(&keep)))])
            }
        })
    }

    /// A new CA.
    pub(super) fn ca(self) -> Result<(CaCertificate, CertifiedIssuer<'static, KeyPair>), CertsError> {
        let failed = |source| CertsError::Issue {
            names: "a CA".to_owned(),
            source,
        };
        let Lifetimes { ca, backdate, .. } = *self.lifetimes;
        let issuer = issue::ca(self.now - backdate..self.now + ca).map_err(failed)?;
        let ca = CaCertificate::from_der(issuer.der().clone());
        let ca = ca.ok_or(failed(rcgen::Error::CouldNotParseCertificate))?;
        Ok((ca, issuer))
    }

    fn issuer<'k>(
        self,
        ca: &CaCertificate,
        key: &'k KeyPair,
    ) -> Result<Issuer<'static, &'k KeyPair>, CertsError> {
        Issuer::from_ca_cert_der(ca.der(), key).map_err(|source| self.failed(source))
    }

    /// A new serving certificate, which expires with its CA at the latest.
    fn leaf(
        self,
        ca: &CaCertificate,
        issuer: &Issuer<'_, impl SigningKey>,
    ) -> Result<SecretChanges, CertsError> {
        let Lifetimes { leaf, backdate, .. } = *self.lifetimes;
        let until = (self.now + leaf).min(ca.validity().until);
        let made = issue::leaf(issuer, self.names, self.now - backdate..until);
        let made = made.map_err(|source| self.failed(source))?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        // A CA provided by a user may have constraints that only a verifier evaluates.
        let identity =
            Identity::from_pem(certificate.as_bytes(), key.as_bytes()).map_err(CertsError::Issued)?;
        if !ca.vouches_for(&identity, self.names, self.now) {
            return Err(CertsError::Useless(self.names.join(", ")));
        }
        Ok(SecretChanges::from([
            (CERTIFICATE, Some(certificate)),
            (KEY, Some(key)),
        ]))
    }

    fn failed(self, source: rcgen::Error) -> CertsError {
        CertsError::Issue {
            names: self.names.join(", "),
            source,
        }
    }
}
