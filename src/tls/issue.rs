//! Issues CAs and serving certificates with ECDSA on P-256. The caller chooses their validity and stores
//! them.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CertifiedKey, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData as _,
};

/// A new CA with its key. It can sign certificates, but not further CAs.
pub(crate) fn ca(valid: Range<SystemTime>) -> Result<CertifiedIssuer<'static, KeyPair>, Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    // Verifiers can distinguish two CAs with the same name only by trying both.
    let id = key.der_bytes().iter().skip(1).take(4);
    let id = id.fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
    let mut params = params(&[], &format!("Transom webhook CA {id:08x}"), valid)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, key)
}

/// A new serving certificate for `names` with its key, signed by `issuer`.
pub(crate) fn leaf(
    issuer: &Issuer<'_, impl rcgen::SigningKey>,
    names: &[String],
    valid: Range<SystemTime>,
) -> Result<CertifiedKey<KeyPair>, Error> {
    let signing_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(names, "Transom webhook", valid)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let cert = params.signed_by(&signing_key, issuer)?;
    Ok(CertifiedKey { cert, signing_key })
}

fn params(names: &[String], common_name: &str, valid: Range<SystemTime>) -> Result<CertificateParams, Error> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = epoch + since_1970(valid.start);
    params.not_after = epoch + since_1970(valid.end);
    Ok(params)
}
