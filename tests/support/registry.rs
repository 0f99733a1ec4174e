//! A real image registry (Debian's docker-registry) on this machine, filled with images as Windows images really are.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::server::free_port;
use super::skipped::skipped;

/// Versions that Microsoft published.
pub const LTSC2019: &str = "10.0.17763.6293";
pub const LTSC2022: &str = "10.0.20348.2700";
pub const LTSC2025: &str = "10.0.26100.1742";

/// A name that a registry with TLS has in its certificate, and that no name server knows (RFC 2606).
pub const FAR_HOST: &str = "registry.invalid";

/// The user of a registry with basic authentication.
pub const USER: &str = "puller";
pub const PASSWORD: &str = "correct horse";
/// Made by `htpasswd -B`, which is the only kind that the registry reads.
const PASSWORD_HASH: &str = "$2b$04$npTXMjW7UpN9oxiCSx6zOOdXucTXAeGYCCicjgEOi0qlEc5nqlJQS";

/// The media types of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Media {
    Oci,
    Docker,
}

impl Media {
    pub fn index(self) -> &'static str {
        match self {
            Media::Oci => "application/vnd.oci.image.index.v1+json",
            Media::Docker => "application/vnd.docker.distribution.manifest.list.v2+json",
        }
    }

    pub fn manifest(self) -> &'static str {
        match self {
            Media::Oci => "application/vnd.oci.image.manifest.v1+json",
            Media::Docker => "application/vnd.docker.distribution.manifest.v2+json",
        }
    }

    fn config(self) -> &'static str {
        match self {
            Media::Oci => "application/vnd.oci.image.config.v1+json",
            Media::Docker => "application/vnd.docker.container.image.v1+json",
        }
    }

    fn layer(self) -> &'static str {
        match self {
            Media::Oci => "application/vnd.oci.image.layer.v1.tar+gzip",
            Media::Docker => "application/vnd.docker.image.rootfs.diff.tar.gzip",
        }
    }
}

/// An image for one platform.
#[derive(Clone, Debug)]
pub struct Variant {
    platform: Value,
    /// What the configuration states and the index does not.
    only_in_config: Vec<&'static str>,
    config: Value,
    history: Vec<Value>,
    layers: Vec<Vec<u8>>,
}

/// An image for a platform. A Linux image has an empty `os.version`.
pub fn variant(os: &str, architecture: &str, os_version: &str) -> Variant {
    let mut platform = json!({"os": os, "architecture": architecture});
    if !os_version.is_empty() {
        platform["os.version"] = json!(os_version);
    }
    let layer = format!("a layer of {os} {architecture} {os_version}").into_bytes();
    Variant {
        platform,
        only_in_config: Vec::new(),
        config: json!({}),
        history: Vec::new(),
        layers: vec![layer],
    }
}

/// A Windows image for amd64.
pub fn windows(os_version: &str) -> Variant {
    variant("windows", "amd64", os_version)
}

/// A Linux image for amd64.
pub fn linux() -> Variant {
    variant("linux", "amd64", "")
}

impl Variant {
    pub fn user(mut self, user: &str) -> Self {
        self.config["User"] = json!(user);
        self
    }

    pub fn volume(mut self, path: &str) -> Self {
        self.config["Volumes"][path] = json!({});
        self
    }

    pub fn command(mut self, entrypoint: &[&str], arguments: &[&str]) -> Self {
        self.config["Entrypoint"] = json!(entrypoint);
        self.config["Cmd"] = json!(arguments);
        self
    }

    /// One more entry of the history.
    pub fn history(mut self, created_by: &str, created: &str) -> Self {
        (self.history).push(json!({"created": created, "created_by": created_by}));
        self
    }

    /// One more layer of this size.
    pub fn layer(mut self, bytes: usize) -> Self {
        self.layers.push(vec![b'x'; bytes]);
        self
    }

    /// The index does not state `os.version`, as after `docker manifest create`.
    pub fn without_version_in_index(mut self) -> Self {
        self.only_in_config.push("os.version");
        self
    }

    /// The sum of the sizes of its layers, in bytes.
    pub fn size(&self) -> u64 {
        self.layers.iter().map(|layer| layer.len() as u64).sum()
    }
}

/// A running registry; it is killed when dropped, and its images are gone.
pub struct Registry {
    process: Child,
    program: PathBuf,
    /// The port on 127.0.0.1 and `localhost`.
    pub port: u16,
    folder: tempfile::TempDir,
    tls: Option<Arc<ClientConfig>>,
    has_password: bool,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// A registry with plain HTTP. Without the program it says so, and the test proves nothing.
    pub fn start_or_skip() -> Option<Registry> {
        Registry::start_with(false, false)
    }

    /// A registry with TLS by a CA of its own ([`Registry::ca_file`]), with basic authentication ([`USER`], [`PASSWORD`]),
    /// or both.
    pub fn start_with(tls: bool, password: bool) -> Option<Registry> {
        Registry::start(tls, password, None)
    }

    /// A registry with plain HTTP that fetches from another one what it does not have (a pull-through cache).
    pub fn start_mirror_of(other: &Registry) -> Option<Registry> {
        Registry::start(false, false, Some(format!("http://{}", other.host())))
    }

    fn start(tls: bool, password: bool, mirror_of: Option<String>) -> Option<Registry> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": false}},
            "storage": {"filesystem": {"rootdirectory": path("images")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if tls {
            issue(folder.path());
            config["http"]["tls"] = json!({"certificate": path("server.pem"), "key": path("server.key")});
        }
        if password {
            std::fs::write(
                folder.path().join("htpasswd"),
                format!("{USER}:{PASSWORD_HASH}\n"),
            )
            .unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "images", "path": path("htpasswd")}});
        }
        if let Some(url) = mirror_of {
            config["proxy"] = json!({"remoteurl": url});
        }
        std::fs::write(folder.path().join("config.yml"), config.to_string()).unwrap();
        let tls = tls.then(|| {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_file(folder.path().join("ca.pem")).unwrap())
                .unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            Arc::new(
                config
                    .unwrap()
                    .with_root_certificates(roots)
                    .with_no_client_auth(),
            )
        });
        let process = spawn(&program, folder.path());
        let registry = Registry {
            process,
            program,
            port,
            folder,
            tls,
            has_password: password,
        };
        registry.wait();
        Some(registry)
    }

    /// Stops it: connections are refused, and the images remain.
    pub fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again on the same port, with the same images.
    pub fn resume(&mut self) {
        self.process = spawn(&self.program, self.folder.path());
        self.wait();
    }

    fn wait(&self) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "docker-registry does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The registry as in image references.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// The reference of an image in it, as in `shop/billing:1.4`.
    pub fn reference(&self, image: &str) -> String {
        format!("{}/{image}", self.host())
    }

    /// The file with the CA of a registry with TLS.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A `config.json` of docker, or the content of a Secret, with the user of this registry.
    pub fn docker_config(&self) -> String {
        self.docker_config_of(USER, PASSWORD)
    }

    /// The same with another user.
    pub fn docker_config_of(&self, user: &str, password: &str) -> String {
        json!({"auths": {self.host(): {"auth": encoded(user, password)}}}).to_string()
    }

    /// The requests that Transom has sent, in order: method and path.
    pub fn requests(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let of_transom = log.lines().filter(|line| line.contains("\"transom/"));
        of_transom
            .filter_map(|line| line.split('"').nth(1)?.strip_suffix(" HTTP/1.1"))
            .map(str::to_owned)
            .collect()
    }

    /// Pushes an image for one platform with this tag, as in `shop/billing:1.4`; returns its digest.
    pub fn push_image(&self, media: Media, image: &str, variant: &Variant) -> String {
        let (repository, tag) = image.rsplit_once(':').unwrap();
        let manifest = self.push_variant(media, repository, variant);
        self.push_manifest(repository, tag, media.manifest(), &manifest)
    }

    /// Pushes an index of variants with this tag; returns its digest.
    pub fn push_index(&self, image: &str, variants: &[Variant]) -> String {
        self.push_index_of(Media::Docker, image, variants)
    }

    /// Pushes an index with these media types.
    pub fn push_index_of(&self, media: Media, image: &str, variants: &[Variant]) -> String {
        let (repository, _) = image.rsplit_once(':').unwrap();
        let entries: Vec<Value> = variants
            .iter()
            .map(|variant| self.push_entry(media, repository, variant))
            .collect();
        self.push_entries(media, image, &entries)
    }

    /// Pushes an index as buildx makes it: an attestation for each variant.
    pub fn push_buildx_index(&self, image: &str, variants: &[Variant]) -> String {
        let (repository, _) = image.rsplit_once(':').unwrap();
        let mut entries: Vec<Value> = variants
            .iter()
            .map(|variant| self.push_entry(Media::Oci, repository, variant))
            .collect();
        let attestations: Vec<Value> = entries
            .iter()
            .map(|entry| self.push_attestation(repository, &entry["digest"]))
            .collect();
        entries.extend(attestations);
        self.push_entries(Media::Oci, image, &entries)
    }

    /// Pushes an index of entries that are written by the test.
    pub fn push_entries(&self, media: Media, image: &str, entries: &[Value]) -> String {
        let (repository, tag) = image.rsplit_once(':').unwrap();
        let index = json!({"schemaVersion": 2, "mediaType": media.index(), "manifests": entries});
        self.push_manifest(repository, tag, media.index(), &index)
    }

    /// Pushes the image of a variant without a tag; returns its entry for an index.
    pub fn push_entry(&self, media: Media, repository: &str, variant: &Variant) -> Value {
        let manifest = self.push_variant(media, repository, variant);
        let text = manifest.to_string();
        let digest = self.push_manifest(repository, &digest(text.as_bytes()), media.manifest(), &manifest);
        let mut platform = variant.platform.clone();
        platform
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !variant.only_in_config.contains(&&**name));
        json!({"mediaType": media.manifest(), "size": text.len(), "digest": digest, "platform": platform})
    }

    fn push_variant(&self, media: Media, repository: &str, variant: &Variant) -> Value {
        let layers: Vec<Value> = variant
            .layers
            .iter()
            .map(|layer| self.push_blob(repository, media.layer(), layer))
            .collect();
        let mut config = variant.platform.clone();
        config["config"] = variant.config.clone();
        config["history"] = json!(variant.history);
        let ids: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
        config["rootfs"] = json!({"type": "layers", "diff_ids": ids});
        let config = self.push_blob(repository, media.config(), config.to_string().as_bytes());
        json!({"schemaVersion": 2, "mediaType": media.manifest(), "config": config, "layers": layers})
    }

    fn push_attestation(&self, repository: &str, subject: &Value) -> Value {
        let statement =
            json!({"_type": "https://in-toto.io/Statement/v0.1", "subject": [{"digest": subject}]});
        let layer = self.push_blob(
            repository,
            "application/vnd.in-toto+json",
            statement.to_string().as_bytes(),
        );
        let config = json!({"architecture": "unknown", "os": "unknown", "config": {}, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}});
        let config = self.push_blob(repository, Media::Oci.config(), config.to_string().as_bytes());
        let kind = Media::Oci.manifest();
        let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]});
        let text = manifest.to_string();
        let digest = self.push_manifest(repository, &digest(text.as_bytes()), kind, &manifest);
        json!({"mediaType": kind, "size": text.len(), "digest": digest, "platform": {"architecture": "unknown", "os": "unknown"},
            "annotations": {"vnd.docker.reference.digest": subject, "vnd.docker.reference.type": "attestation-manifest"}})
    }

    /// Pushes a manifest or an index by tag or digest; returns its digest.
    pub fn push_manifest(&self, repository: &str, reference: &str, kind: &str, manifest: &Value) -> String {
        let text = manifest.to_string();
        self.send(
            "PUT",
            &format!("/v2/{repository}/manifests/{reference}"),
            kind,
            text.as_bytes(),
        );
        digest(text.as_bytes())
    }

    /// Pushes content; returns its descriptor.
    pub fn push_blob(&self, repository: &str, kind: &str, content: &[u8]) -> Value {
        let answer = self.send(
            "POST",
            &format!("/v2/{repository}/blobs/uploads/"),
            "text/plain",
            b"",
        );
        let location = answer
            .lines()
            .find_map(|line| line.strip_prefix("Location: "))
            .unwrap();
        let path = location.get(location.find("/v2/").unwrap()..).unwrap();
        let digest = digest(content);
        self.send(
            "PUT",
            &format!("{path}&digest={digest}"),
            "application/octet-stream",
            content,
        );
        json!({"mediaType": kind, "size": content.len(), "digest": digest})
    }

    /// Sends a request; returns the head and body of its answer.
    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> String {
        let (host, length) = (self.host(), body.len());
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n"
        );
        if self.has_password {
            request.push_str("authorization: Basic ");
            request.push_str(&encoded(USER, PASSWORD));
            request.push_str("\r\n");
        }
        let request = [request.as_bytes(), b"\r\n", body].concat();
        let connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let answer = match &self.tls {
            None => exchange(connection, &request),
            Some(tls) => {
                let name = ServerName::try_from("localhost").unwrap();
                let session = ClientConnection::new(Arc::clone(tls), name).unwrap();
                exchange(StreamOwned::new(session, connection), &request)
            }
        };
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        answer
    }
}

fn encoded(user: &str, password: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}"))
}

fn exchange(mut connection: impl Read + Write, request: &[u8]) -> String {
    connection.write_all(request).unwrap();
    connection.flush().unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn program() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&paths).map(|folder| folder.join("docker-registry"));
    let found = programs.find(|program| program.is_file());
    if found.is_none() {
        skipped(
            "SKIPPED: asking a registry is not proved: there is no docker-registry in PATH (apt-get install docker-registry)",
        );
    }
    found
}

fn spawn(program: &std::path::Path, folder: &std::path::Path) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    Command::new(program)
        .arg("serve")
        .arg(folder.join("config.yml"))
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Writes a CA, and a certificate by it for this machine.
fn issue(folder: &std::path::Path) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let server_key = KeyPair::generate().unwrap();
    let names = [
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        FAR_HOST.to_owned(),
    ];
    let server = CertificateParams::new(names)
        .unwrap()
        .signed_by(&server_key, &issuer)
        .unwrap();
    std::fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    std::fs::write(folder.join("server.pem"), server.pem()).unwrap();
    std::fs::write(folder.join("server.key"), server_key.serialize_pem()).unwrap();
}

/// The digest of content, `sha256:…`.
pub fn digest(content: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, content);
    let hex: Vec<String> = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}
