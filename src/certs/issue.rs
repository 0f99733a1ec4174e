//! Makes CAs and serving certificates: ECDSA on P-256.

use std::time::SystemTime;

use rcgen::{CertifiedIssuer, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};

use super::x509::Authority;
use super::{Error, Lifetimes};
use crate::tls::issue::{ca_params, leaf_params, valid};

/// A CA with the key that it signs with.
pub(super) struct NewAuthority {
    pub(super) authority: Authority,
    /// In PEM.
    pub(super) key: String,
}

/// A serving certificate with its key, both in PEM.
pub(super) struct NewLeaf {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A new CA.
pub(super) fn authority(lifetimes: &Lifetimes, now: SystemTime) -> Result<NewAuthority, Error> {
    let make = || {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        // Two CAs of the same name are told apart by verifiers only by trying both.
        let id = key
            .der_bytes()
            .iter()
            .skip(1)
            .take(4)
            .fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
        let mut params = ca_params(&format!("Transom webhook CA {id:08x}"))?;
        valid(&mut params, now, now + lifetimes.ca, lifetimes.backdate);
        CertifiedIssuer::self_signed(params, key)
    };
    let failed = |source| Error::Issue {
        names: "a CA".to_owned(),
        source,
    };
    let issuer = make().map_err(failed)?;
    let authority = Authority::from_der(issuer.der().clone());
    Ok(NewAuthority {
        authority: authority.ok_or(failed(rcgen::Error::CouldNotParseCertificate))?,
        key: issuer.key().serialize_pem(),
    })
}

/// A new serving certificate, which ends with its CA at the latest.
pub(super) fn leaf(
    authority: &Authority,
    key: &KeyPair,
    names: &[String],
    lifetimes: &Lifetimes,
    now: SystemTime,
) -> Result<NewLeaf, Error> {
    let make = || {
        let issuer = Issuer::from_ca_cert_der(authority.der(), key)?;
        let own = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = leaf_params(names)?;
        let until = (now + lifetimes.leaf).min(authority.not_after());
        valid(&mut params, now, until, lifetimes.backdate);
        let certificate = params.signed_by(&own, &issuer)?;
        Ok((certificate, own))
    };
    let (certificate, own) = make().map_err(|source| Error::Issue {
        names: names.join(", "),
        source,
    })?;
    Ok(NewLeaf {
        certificate: certificate.pem(),
        key: own.serialize_pem(),
    })
}
