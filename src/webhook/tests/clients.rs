//! Client certificates: which ones are accepted, and replacing the CA while the server runs.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::PrivateKeyDer;

use super::*;
use crate::tls::client_auth::ClientCertificates;

/// A CA for client certificates.
struct Issuer(CertifiedIssuer<'static, KeyPair>);

/// What a client presents.
type PresentedCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Issuer {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with a common name and DNS names.
    fn issue(&self, common: &str, names: &[&str], usage: ExtendedKeyUsagePurpose) -> PresentedCertificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![certificate.der().clone()], key)
    }
}

/// The result of a review over a connection that presents this certificate.
async fn status_of(server: &Running, shown: Option<&PresentedCertificate>) -> Result<StatusCode, String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(server.ca.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shown {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::from(server.address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // With TLS 1.3, a client finishes its handshake before it learns that it is rejected.
    let driven = tokio::spawn(connection);
    match sender.send_request(post("/validate", full("{}"))).await {
        Ok(response) => Ok(response.status()),
        Err(error) => Err(format!("{error} {:?}", driven.await)),
    }
}

async fn serve(ca: &std::path::Path, names: &[&str], are_required: bool) -> Running {
    let mut config = config(Limits::default(), self_signed());
    config.clients = Some(ClientCertificates {
        ca: ca.to_owned(),
        names: names.iter().map(ToString::to_string).collect(),
        are_required,
        poll: Duration::from_millis(10),
    });
    run(config).await
}

#[tokio::test]
async fn a_certificate_that_is_shown_must_be_one_of_the_ca_with_the_name() {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    let (ours, theirs) = (Issuer::new(), Issuer::new());
    std::fs::write(&ca, ours.0.pem()).unwrap();
    let named = ours.issue("kube-apiserver", &[], ClientAuth);
    let by_dns = ours.issue("other", &["kube-apiserver"], ClientAuth);
    let kubelet = ours.issue("system:node:a", &["a"], ClientAuth);
    let server_only = ours.issue("kube-apiserver", &[], ServerAuth);
    let foreign = theirs.issue("kube-apiserver", &[], ClientAuth);
    for (names, are_required, shown, gets_in) in [
        (&["kube-apiserver"][..], true, Some(&named), true),
        (&["kube-apiserver"], true, Some(&by_dns), true),
        (&["kube-apiserver"], true, Some(&kubelet), false),
        (&[], true, Some(&kubelet), true),
        (&[], true, Some(&server_only), false),
        (&[], true, Some(&foreign), false),
        (&[], true, None, false),
        (&[], false, None, true),
        (&[], false, Some(&named), true),
        (&[], false, Some(&foreign), false),
    ] {
        let server = serve(&ca, names, are_required).await;
        let outcome = status_of(&server, shown).await;
        assert_eq!(outcome.is_ok(), gets_in, "{names:?} {are_required}: {outcome:?}");
        assert!(outcome.is_err() || outcome == Ok(StatusCode::OK));
        server.stop().await;
    }
}

#[tokio::test]
async fn a_ca_that_is_replaced_counts_without_a_restart_and_nonsense_in_its_place_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    let (old, new) = (Issuer::new(), Issuer::new());
    std::fs::write(&ca, old.0.pem()).unwrap();
    let server = serve(&ca, &[], true).await;
    let [of_old, of_new] = [&old, &new].map(|ca| ca.issue("api", &[], ExtendedKeyUsagePurpose::ClientAuth));
    assert!(status_of(&server, Some(&of_old)).await.is_ok());
    std::fs::write(&ca, "nonsense").unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(status_of(&server, Some(&of_old)).await.is_ok());
    std::fs::write(&ca, new.0.pem()).unwrap();
    while status_of(&server, Some(&of_new)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(status_of(&server, Some(&of_old)).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn a_file_without_a_ca_is_refused_at_the_start_by_its_flag() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    for (content, why) in [
        (None, "No such file"),
        (Some(""), "no certificate in it"),
        (
            Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"),
            "",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(&ca, content).unwrap();
        }
        let mut config = config(Limits::default(), self_signed());
        config.clients = Some(ClientCertificates {
            ca: ca.clone(),
            names: Vec::new(),
            are_required: false,
            poll: Duration::from_secs(5),
        });
        let error = Server::bind(config).await.unwrap_err().to_string();
        assert!(
            error.contains("ca.crt (--client-ca): ") && error.contains(why),
            "{error}"
        );
    }
}
