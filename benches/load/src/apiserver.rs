//! The control plane of a measurement, and a client of its API server that only creates pods as a dry run, on one persistent
//! HTTP/1.1 connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::control_plane::{ControlPlane, programs};

/// Starts a control plane with additional flags for the API server.
pub fn start_control_plane(more: &[&str]) -> anyhow::Result<ControlPlane> {
    programs()
        .and_then(|programs| ControlPlane::start_with(programs, more))
        .map_err(anyhow::Error::msg)
}

/// Makes a namespace for each way to create a pod, with its name as a label.
pub fn make_namespaces<'w>(cluster: &ControlPlane, ways: impl IntoIterator<Item = &'w str>) {
    for way in ways {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": way, "labels": {"way": way}}});
        cluster
            .kubectl_with(&["create", "-f", "-"], &namespace.to_string())
            .succeeded();
    }
}

pub struct Client(SendRequest<Full<Bytes>>);

impl Client {
    /// Connects as the administrator.
    pub async fn connect(cluster: &ControlPlane) -> anyhow::Result<Self> {
        let kubeconfig: Value =
            serde_json::from_str(&std::fs::read_to_string(cluster.path("admin.kubeconfig"))?)?;
        let server = kubeconfig["clusters"][0]["cluster"]["server"]
            .as_str()
            .context("no server in the kubeconfig")?;
        let address = server.trim_start_matches("https://").to_owned();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(cluster.path("ca.crt"))? {
            roots.add(certificate?)?;
        }
        let chain =
            CertificateDer::pem_file_iter(cluster.path("admin.crt"))?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(cluster.path("admin.key"))?;
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tcp = TcpStream::connect(&address)
            .await
            .context("cannot connect to the API server")?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1")?;
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        Ok(Client(sender))
    }

    /// Creates a pod as a dry run; returns the time, and the pod in the answer.
    pub async fn create(&mut self, namespace: &str, pod: &Value) -> anyhow::Result<(Duration, Value)> {
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"))
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(Full::new(Bytes::from(pod.to_string())))?;
        self.0.ready().await?;
        let started = Instant::now();
        let response = self.0.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let took = started.elapsed();
        if !status.is_success() {
            bail!("{namespace}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok((took, serde_json::from_slice(&body)?))
    }
}
