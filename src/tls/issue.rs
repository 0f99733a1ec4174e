//! What every certificate of Transom's own has in common, whoever keeps it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};

/// What every CA of Transom's may do: sign certificates, and nothing below it may.
pub(crate) fn ca_params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// What every serving certificate of Transom's may do: serve these names.
pub(crate) fn leaf_params(names: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Transom webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// A validity that begins a little before `now`, for clocks that are behind.
pub(crate) fn valid(params: &mut CertificateParams, now: SystemTime, until: SystemTime, backdate: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = epoch + since_1970(now).saturating_sub(backdate);
    params.not_after = epoch + since_1970(until);
}
