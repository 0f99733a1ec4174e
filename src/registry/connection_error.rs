//! Why there is no connection to a registry, in plain words with the remedy. Recognized by type: the texts of the libraries
//! name neither the host nor what to do.

use std::error::Error;
use std::io;

use rustls::CertificateError;

use crate::process::with_causes;

/// The remedy of a certificate whose CA is not known. A command adds the name of its option.
pub(super) const ADD_CA: &str = "add the CA of the registry";
/// What an answer without TLS can mean. A command adds the name of its option.
pub(super) const WITHOUT_TLS: &str = "perhaps it is a registry without TLS";

/// Why a host name has no address to connect to.
#[derive(thiserror::Error, Debug)]
pub(super) enum AddressError {
    /// The name has no address.
    #[error("the host name {0} does not resolve")]
    Unresolved(String),
    /// The name has only addresses that are never called.
    #[error("{0}")]
    Forbidden(String),
}

/// The message for a request to a host that was not answered.
pub(super) fn connection_error(host: &str, error: &(dyn Error + 'static)) -> String {
    match cause(error) {
        Some(Cause::Sentence(sentence)) => sentence,
        Some(Cause::Connection(why)) => format!("cannot connect to {host}: {why}"),
        None => format!("cannot connect to {host}: {}", with_causes(error)),
    }
}

/// The reason alone.
pub(super) fn without_host(error: &(dyn Error + 'static)) -> String {
    match cause(error) {
        Some(Cause::Sentence(why)) => why,
        Some(Cause::Connection(why)) => why.to_owned(),
        None => with_causes(error),
    }
}

enum Cause {
    /// It says everything.
    Sentence(String),
    /// Why a connection failed.
    Connection(&'static str),
}

/// The first known cause. The source of an [`io::Error`] is not the error that it wraps, so that is followed itself.
fn cause(error: &(dyn Error + 'static)) -> Option<Cause> {
    if let Some(error) = error.downcast_ref::<AddressError>() {
        return Some(Cause::Sentence(error.to_string()));
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(Cause::Sentence(of_tls(error)));
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>()
        && error.is_incomplete_message()
    {
        return Some(Cause::Connection("it closed the connection without an answer"));
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        let inner = error.get_ref().and_then(|inner| cause(inner));
        return inner.or_else(|| of_kind(error.kind()).map(Cause::Connection));
    }
    error.source().and_then(cause)
}

fn of_kind(kind: io::ErrorKind) -> Option<&'static str> {
    Some(match kind {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => "it closed the connection",
        io::ErrorKind::UnexpectedEof => "it closed the connection without an answer",
        io::ErrorKind::TimedOut => "no answer",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no route to it",
        _ => return None,
    })
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::InvalidMessage(_) => format!("it does not answer with TLS; {WITHOUT_TLS}"),
        rustls::Error::AlertReceived(alert) => format!("it refused the TLS connection ({alert:?})"),
        other => format!("TLS does not work with it: {other}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            format!("its certificate is from a CA that this machine does not trust: {ADD_CA}")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            if presented.is_empty() {
                return format!("its certificate is for no host name, and not for {expected}");
            }
            let names: Vec<String> = presented.iter().map(|name| bare_name(name)).collect();
            let names = crate::model::syntax::text::list(names, 4);
            format!("its certificate is for {names}, not for {expected}")
        }
        CertificateError::NotValidForName => "its certificate is for another host name".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; is the clock of this machine right?".to_owned()
        }
        // rustls has no variant for it.
        CertificateError::Other(error) if format!("{error:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is itself a CA certificate (self-signed): issue a server certificate from a CA, and name that CA"
                .to_owned()
        }
        other => format!("its certificate is not valid: {other}"),
    }
}

/// A name as in a certificate, which rustls shows as `DnsName("registry.example")`.
fn bare_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::Full;
    use hyper::Request;
    use hyper_util::client::proxy::matcher::Matcher;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use crate::registry::RegistryConfig;
    use crate::registry::transport::{Transport, system_lookup};

    /// The message of a request, with this CA in addition to those of the machine.
    async fn message(url: &str, ca: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, ca.unwrap_or_default()).unwrap();
        let config = RegistryConfig {
            ca_files: ca.map(|_| file).into_iter().collect(),
            ..RegistryConfig::default()
        };
        let transport = Transport::new(&config, system_lookup, Matcher::builder().build()).unwrap();
        let request = Request::get(url).body(Full::default()).unwrap();
        let error = transport.send(request, 1 << 20).await.err().unwrap();
        error.message
    }

    /// A server with a certificate that it signed itself; returns its host, and the certificate.
    async fn tls_server(name: &str, is_ca: bool) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("localhost:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                // The client ends the handshake.
                let _ = acceptor.accept(connection).await;
            }
        });
        (host, certificate.pem())
    }

    #[tokio::test]
    async fn a_certificate_that_is_not_valid_is_named_with_the_cure() {
        let (unknown, _) = tls_server("localhost", false).await;
        assert_eq!(
            message(&format!("https://{unknown}/"), None).await,
            "its certificate is from a CA that this machine does not trust: add the CA of the registry"
        );
        let (other, ca) = tls_server("other.example", false).await;
        assert_eq!(
            message(&format!("https://{other}/"), Some(&ca)).await,
            "its certificate is for other.example, not for localhost"
        );
        let (itself, ca) = tls_server("localhost", true).await;
        assert_eq!(
            message(&format!("https://{itself}/"), Some(&ca)).await,
            "its certificate is itself a CA certificate (self-signed): issue a server certificate from a CA, and name \
             that CA"
        );
    }

    #[tokio::test]
    async fn a_host_that_does_not_answer_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
        drop(listener);
        assert_eq!(
            message(&format!("http://{closed}/"), None).await,
            format!("cannot connect to {closed}: connection refused")
        );
        // RFC 6761: no resolver has a name below it.
        assert_eq!(
            message("https://registry.invalid/", None).await,
            "the host name registry.invalid does not resolve"
        );
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = plain.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut connection, _) = plain.accept().await.unwrap();
            connection
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
            // Until the client closes it.
            let _ = connection.read_to_end(&mut Vec::new()).await;
        });
        assert_eq!(
            message(&format!("https://localhost:{port}/"), None).await,
            "it does not answer with TLS; perhaps it is a registry without TLS"
        );
    }
}
