//! Docker's `config.json`, which is also the content of a Secret with credentials and podman's `auth.json`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use super::helper::{self, Helped};
use super::{Credential, KeychainError, RepositoryCredentials, Secret};
use crate::model::windows::registry_patterns::split_port;

/// Base64 with padding or without, as people write it.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// The maximum size of a file, in bytes: that of a Secret.
const FILE: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: String,
}

#[derive(Deserialize)]
struct AuthEntry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
}

/// The credentials of one file or Secret.
pub(super) struct CredentialStore {
    /// For messages.
    pub source: String,
    /// The most specific pattern first.
    entries: Vec<(HostPattern, Secret)>,
    helpers: BTreeMap<String, String>,
    default_helper: Option<String>,
    helped: helper::Cache,
}

/// A key of `auths`: a host with wildcards in its labels, and the beginning of a path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HostPattern {
    host: String,
    path: String,
}

/// The files that may have credentials of the user, in the order in which they are tried.
pub(super) fn files_of_user() -> Vec<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|it| !it.is_empty())
            .map(PathBuf::from)
    };
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let in_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let docker = folder("DOCKER_CONFIG").or_else(|| in_home(".docker"));
    let podman = folder("REGISTRY_AUTH_FILE")
        .or_else(|| Some(folder("XDG_RUNTIME_DIR")?.join("containers/auth.json")));
    let docker = docker.map(|folder| folder.join("config.json"));
    [docker, podman, in_home(".config/containers/auth.json")]
        .into_iter()
        .flatten()
        .collect()
}

impl CredentialStore {
    /// Reads a file; `None` if there is none.
    pub fn of_file(path: &Path) -> Result<Option<Self>, KeychainError> {
        let source = path.display().to_string();
        let error = |why: String| KeychainError {
            origin: source.clone(),
            why,
        };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(error(why.to_string())),
        };
        let mut json = Vec::new();
        file.take(FILE + 1)
            .read_to_end(&mut json)
            .map_err(|why| error(why.to_string()))?;
        if json.len() as u64 > FILE {
            return Err(error("larger than 1 MiB".to_owned()));
        }
        CredentialStore::parse(&json, &source, true).map(Some)
    }

    /// Parses a file. Only its owner's programs are started, so those of a Secret are ignored.
    pub fn parse(json: &[u8], source: &str, has_helpers: bool) -> Result<Self, KeychainError> {
        let config: DockerConfig = serde_json::from_slice(json).map_err(|error| KeychainError {
            origin: source.to_owned(),
            // The error itself may quote a secret.
            why: format!(
                "not a docker config.json: see line {}, column {}",
                error.line(),
                error.column()
            ),
        })?;
        let mut entries = Vec::new();
        for (key, entry) in config.auths {
            match entry.secret() {
                Ok(Some(secret)) => entries.push((HostPattern::parse(&key), secret)),
                Ok(None) => {}
                Err(why) => {
                    let (origin, why) = (source.to_owned(), format!("auths[{key:?}]: {why}"));
                    return Err(KeychainError { origin, why });
                }
            }
        }
        // In descending order a longer path is before its beginning.
        entries.sort_by(|one, other| other.0.cmp(&one.0));
        Ok(CredentialStore {
            source: source.to_owned(),
            entries,
            helpers: if has_helpers {
                config.cred_helpers
            } else {
                BTreeMap::new()
            },
            default_helper: Some(config.creds_store).filter(|name| has_helpers && !name.is_empty()),
            helped: helper::Cache::default(),
        })
    }

    /// Adds the credentials for a repository.
    pub async fn add_credentials(&self, registry: &str, repository: &str, found: &mut RepositoryCredentials) {
        if let Some(name) = self.helper_of(registry) {
            match helper::get(name, registry, &self.helped).await {
                Helped::Credential(credential) => return found.list.push(credential),
                Helped::None => {}
                Helped::Failed(why) => found.trouble = Some(why),
            }
        }
        for secret in self.matching(registry, repository) {
            let (source, secret) = (self.source.clone(), secret.clone());
            found.list.push(Credential { source, secret });
        }
    }

    /// Whether there is this secret for a host as a whole.
    pub fn has(&self, host: &str, secret: &Secret) -> bool {
        self.matching(host, "").any(|it| it == secret)
    }

    fn helper_of(&self, registry: &str) -> Option<&str> {
        let of_registry = self.helpers.get(registry);
        let of_hub = || {
            self.helpers
                .get("index.docker.io")
                .or(self.helpers.get("https://index.docker.io/v1/"))
        };
        let helper = of_registry.or_else(|| of_hub().filter(|_| registry == "docker.io"));
        helper.or(self.default_helper.as_ref()).map(String::as_str)
    }

    fn matching(&self, registry: &str, repository: &str) -> impl Iterator<Item = &Secret> {
        let matching = self
            .entries
            .iter()
            .filter(move |(pattern, _)| pattern.matches(registry, repository));
        matching.map(|(_, secret)| secret)
    }
}

impl AuthEntry {
    /// The secret; `None` if a helper has it.
    fn secret(self) -> Result<Option<Secret>, &'static str> {
        if !self.identitytoken.is_empty() {
            return Ok(Some(Secret::Identity(self.identitytoken)));
        }
        if self.auth.is_empty() {
            let (user, password) = (self.username, self.password);
            return Ok((!user.is_empty()).then_some(Secret::Basic { user, password }));
        }
        let decoded = GeneralPurpose::new(&STANDARD, LENIENT).decode(self.auth.trim());
        let text = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) = text
            .as_ref()
            .and_then(|text| text.split_once(':'))
            .ok_or("auth must be the base64 encoding of USER:PASSWORD")?;
        let (user, password) = (user.to_owned(), password.trim_end_matches('\0').to_owned());
        Ok(Some(Secret::Basic { user, password }))
    }
}

impl HostPattern {
    /// Parses a key: `registry.example`, `*.azurecr.io`, `registry.example:5000/shop`, `https://index.docker.io/v1/`.
    fn parse(key: &str) -> Self {
        let bare = key
            .strip_prefix("https://")
            .or_else(|| key.strip_prefix("http://"))
            .unwrap_or(key);
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        // The version of the API, which docker writes.
        let path = ["v1/", "v2/"]
            .iter()
            .find_map(|version| path.strip_prefix(version))
            .unwrap_or(path);
        let path = if matches!(path, "v1" | "v2") { "" } else { path };
        let host = match host.to_ascii_lowercase().as_str() {
            "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
            host => host.to_owned(),
        };
        HostPattern {
            host,
            path: path.to_owned(),
        }
    }

    /// Whether it is for this repository: each label of the host matches one, and the path is the beginning of the name,
    /// as in the kubelet.
    fn matches(&self, registry: &str, repository: &str) -> bool {
        let registry = registry.to_ascii_lowercase();
        let (own, other) = (split_port(&self.host), split_port(&registry));
        let labels = |host: &str| host.split('.').count();
        own.1 == other.1
            && labels(own.0) == labels(other.0)
            && own
                .0
                .split('.')
                .zip(other.0.split('.'))
                .all(|(pattern, label)| is_glob_match(pattern, label))
            && repository.starts_with(&self.path)
    }
}

/// Whether a label matches a pattern in which `*` is any text and `?` one character.
fn is_glob_match(pattern: &str, label: &str) -> bool {
    let (pattern, label) = (pattern.as_bytes(), label.as_bytes());
    // Position in pattern and label, and after the last star.
    let (mut p, mut l, mut star) = (0, 0, None);
    while l < label.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, l));
            }
            Some(it) if *it == b'?' || label.get(l) == Some(it) => {
                p += 1;
                l += 1;
            }
            _ => match star {
                Some((after, taken)) => {
                    (p, l) = (after, taken + 1);
                    star = Some((after, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|it| *it == b'*')
}
