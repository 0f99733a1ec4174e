//! CA certificates that certificates of servers and clients may chain to: from files, and of the machine.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::files::{self, Accept};

/// Adds the certificates in a PEM file of an accepted type.
///
/// # Errors
/// Why the file cannot be read, or contains no usable certificate; without the path.
pub fn add_file(roots: &mut RootCertStore, path: &Path, accept: Accept) -> Result<(), String> {
    let pem = files::read(path, accept, files::CERTIFICATE_BYTES);
    add_pem(roots, &pem.map_err(|error| error.to_string())?)
}

/// Adds the certificates of a PEM text.
///
/// # Errors
/// What is wrong with it, also if it contains no certificate.
pub fn add_pem(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() == before {
        return Err("no certificate in it".to_owned());
    }
    Ok(())
}

/// The CA certificates of this machine. If it has none, as in an image with nothing but the program, Mozilla's stand
/// in: otherwise no public server could be verified.
pub fn of_machine() -> RootCertStore {
    or_mozillas(rustls_native_certs::load_native_certs().certs)
}

fn or_mozillas(of_machine: Vec<CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(of_machine);
    if roots.is_empty() {
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_certificates_trusts_mozillas_and_another_only_its_own() {
        let stand_in = or_mozillas(Vec::new());
        assert_eq!(stand_in.len(), webpki_root_certs::TLS_SERVER_ROOT_CERTS.len());
        let unreadable = CertificateDer::from(vec![0]);
        assert_eq!(or_mozillas(vec![unreadable]).len(), stand_in.len());
        let own = webpki_root_certs::TLS_SERVER_ROOT_CERTS[0].clone();
        assert_eq!(or_mozillas(vec![own]).len(), 1);
    }
}
