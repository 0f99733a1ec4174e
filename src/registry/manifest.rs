//! Parses registry responses: an index of images for several platforms, the manifest of one image, and its
//! configuration. All of it is data of others: sizes, counts and texts are bounded.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::LookupError;
use super::digest::Digest;
use crate::model::syntax::json_types::List;
use crate::model::windows::image_facts::{ImageConfig, ImageLayer, ImageVariant, WindowsBase};

/// The maximum size of an index or a manifest in bytes, as in the registries that state one.
pub(super) const MANIFEST: usize = 4 << 20;
/// The maximum size of a configuration, in bytes.
pub(super) const CONFIG: usize = 1 << 20;
/// The maximum number of entries of an index.
const ENTRIES: usize = 1_000;
/// The maximum number of layers that are kept; Windows mounts fewer.
const LAYERS: usize = 256;
/// The maximum length of the name of a system or an architecture, in bytes.
const NAME: usize = 64;
/// The maximum number of volumes and of words of a command that are kept, and the length of each in bytes.
const LIST: usize = 64;
const TEXT: usize = 512;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1+";

/// The accepted media types: Docker's and OCI's, for indexes and manifests.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: Option<u32>,
    media_type: Option<String>,
    manifests: Option<List<IndexEntry>>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: List<Layer>,
    fs_layers: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: Option<String>,
    digest: String,
}

#[derive(Deserialize)]
struct Layer {
    digest: Option<String>,
    #[serde(default)]
    size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexEntry {
    media_type: Option<String>,
    digest: Option<String>,
    platform: Option<ManifestPlatform>,
    #[serde(default)]
    annotations: Annotations,
}

/// The annotation by which BuildKit marks attestations: statements about another entry, and not images.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "vnd.docker.reference.type")]
    reference_type: Option<IgnoredAny>,
}

/// The platform, in an index and in a configuration.
#[derive(Deserialize)]
struct ManifestPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(rename = "os.version", default)]
    version: String,
    variant: Option<String>,
}

/// The settings in a configuration, which also is a [`ManifestPlatform`].
#[derive(Deserialize)]
struct Settings {
    config: Option<ContainerConfig>,
    #[serde(default)]
    history: List<HistoryEntry>,
}

#[derive(Deserialize)]
struct HistoryEntry {
    created: Option<String>,
    created_by: Option<String>,
}

impl HistoryEntry {
    fn base(&self) -> Option<WindowsBase> {
        WindowsBase::of_history(self.created_by.as_deref()?, self.created.as_deref()?)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct ContainerConfig {
    user: Option<String>,
    volumes: Option<BTreeMap<String, Value>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

/// The result of parsing an index or a manifest.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum ManifestContent {
    /// The variants of an index.
    Index(Vec<ImageVariant>),
    /// The manifest of one image.
    Image(SingleImage),
}

/// What the manifest of one image states.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct SingleImage {
    /// The digest of its configuration.
    pub config: Digest,
    /// The sum of the compressed sizes of its layers, in bytes.
    pub size: u64,
    /// Its layers; see [`ImageVariant::layers`].
    pub layers: Vec<ImageLayer>,
}

/// Parses an index or a manifest that was sent with this `Content-Type`.
pub(super) fn read(content_type: &str, json: &[u8]) -> Result<ManifestContent, LookupError> {
    let manifest: Result<Manifest, _> = serde_json::from_slice(json);
    let kind = media_type(content_type);
    if kind.starts_with(SCHEMA_1) {
        return Err(schema_1());
    }
    let manifest = manifest.map_err(|_| LookupError::image("the answer is not a manifest"))?;
    if manifest.schema_version == Some(1) || manifest.fs_layers.is_some() {
        return Err(schema_1());
    }
    let kind = agreed_type(kind, manifest.media_type.as_deref())?;
    match (kind, manifest.manifests, manifest.config) {
        (OCI_INDEX | DOCKER_INDEX, Some(entries), None) => variants(&entries).map(ManifestContent::Index),
        (OCI_MANIFEST | DOCKER_MANIFEST, None, Some(config)) => {
            let (size, layers) = layers(&manifest.layers);
            let config = config_digest(&config)?;
            Ok(ManifestContent::Image(SingleImage { config, size, layers }))
        }
        (OCI_INDEX | DOCKER_INDEX | OCI_MANIFEST | DOCKER_MANIFEST, ..) => Err(LookupError::image(format!(
            "the answer is not what its media type {kind} says"
        ))),
        _ => Err(LookupError::image(format!(
            "the media type {kind} is not one of container images"
        ))),
    }
}

fn schema_1() -> LookupError {
    LookupError::image("a manifest of schema 1, which containerd does not pull; push the image again")
}

/// A `Content-Type` without its parameters.
fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The media type of header and body. Servers of plain files send a general type, or none. A different type in the
/// body would let two readers see two images (CVE-2021-41190).
fn agreed_type<'a>(header: &'a str, body: Option<&'a str>) -> Result<&'a str, LookupError> {
    let general = ["", "application/json", "application/octet-stream", "text/plain"];
    let header = Some(header).filter(|kind| !general.contains(kind));
    match (header, body) {
        (Some(header), Some(body)) if header != body => Err(LookupError::image(format!(
            "it is of the media type {header}, and states {body}"
        ))),
        (Some(kind), _) | (None, Some(kind)) => Ok(kind),
        (None, None) => Err(LookupError::image("the answer has no media type")),
    }
}

/// The variants of an index: without attestations, entries without a platform, and those that are not images.
fn variants(entries: &[IndexEntry]) -> Result<Vec<ImageVariant>, LookupError> {
    if entries.len() > ENTRIES {
        return Err(LookupError::image(format!(
            "an index of more than {ENTRIES} entries"
        )));
    }
    let mut variants = Vec::new();
    for entry in entries {
        let kind = entry.media_type.as_deref();
        if matches!(kind, Some(OCI_INDEX | DOCKER_INDEX)) {
            // What a node pulls from it depends on the version of containerd.
            return Err(LookupError::image(
                "an index that contains another index, which Transom does not follow",
            ));
        }
        let is_image = matches!(kind, None | Some(OCI_MANIFEST | DOCKER_MANIFEST));
        if !is_image || entry.annotations.reference_type.is_some() {
            continue;
        }
        let Some(platform) = &entry.platform else { continue };
        if platform.os == "unknown" || platform.os.is_empty() {
            continue;
        }
        let digest = entry.digest.as_deref().and_then(Digest::parse);
        let digest = digest.ok_or_else(|| LookupError::image("an index with an invalid digest"))?;
        variants.push(ImageVariant {
            digest: digest.to_string(),
            ..platform.variant()?
        });
    }
    Ok(variants)
}

impl ManifestPlatform {
    fn variant(&self) -> Result<ImageVariant, LookupError> {
        let variant = self.variant.as_deref().filter(|variant| !variant.is_empty());
        for name in [&*self.os, &*self.architecture, variant.unwrap_or_default()] {
            if name.len() > NAME || !name.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(LookupError::image("a platform with an invalid name"));
            }
        }
        Ok(ImageVariant {
            variant: variant.map(str::to_owned),
            ..ImageVariant::new(&self.os, &self.architecture, &self.version)
        })
    }
}

/// The sum of the sizes of all layers, and the layers. Of more than [`LAYERS`], or with an invalid digest, none is kept: a
/// part of them would count as all.
fn layers(all: &[Layer]) -> (u64, Vec<ImageLayer>) {
    let size = all
        .iter()
        .fold(0, |sum: u64, layer| sum.saturating_add(layer.size));
    let kept = |layer: &Layer| {
        let digest = Digest::parse(layer.digest.as_deref()?)?.to_string();
        let size = layer.size;
        Some(ImageLayer { digest, size })
    };
    let layers = all.iter().filter(|_| all.len() <= LAYERS);
    let layers: Option<Vec<ImageLayer>> = layers.map(kept).collect();
    (size, layers.unwrap_or_default())
}

/// The digest of the configuration, if it is one of an image: Helm charts and signatures have manifests too.
fn config_digest(config: &Descriptor) -> Result<Digest, LookupError> {
    let kind = config.media_type.as_deref();
    if !matches!(kind, None | Some(OCI_CONFIG | DOCKER_CONFIG)) {
        let kind = kind.unwrap_or_default();
        return Err(LookupError::image(format!(
            "it is not a container image: its configuration is of the type {kind}"
        )));
    }
    Digest::parse(&config.digest).ok_or_else(|| LookupError::image("a manifest with an invalid digest"))
}

/// The platform and the settings in the configuration of an image.
pub(super) fn of_config(json: &[u8]) -> Result<ImageVariant, LookupError> {
    let invalid = |_| LookupError::image("a configuration that is not valid");
    let platform: ManifestPlatform = serde_json::from_slice(json).map_err(invalid)?;
    let settings: Settings = serde_json::from_slice(json).map_err(invalid)?;
    if platform.os.is_empty() {
        return Err(LookupError::image("a configuration without an operating system"));
    }
    let config = settings.config.unwrap_or_default();
    let volumes = config.volumes.unwrap_or_default().into_keys();
    let command = config
        .entrypoint
        .unwrap_or_default()
        .into_iter()
        .chain(config.cmd.unwrap_or_default());
    let config = ImageConfig {
        user: shortened(config.user.unwrap_or_default()),
        volumes: volumes.take(LIST).map(shortened).collect(),
        command: command.take(LIST).map(shortened).collect(),
        base: settings.history.iter().rev().find_map(HistoryEntry::base),
    };
    Ok(ImageVariant {
        config: Some(config),
        ..platform.variant()?
    })
}

/// The first bytes of a text, up to a whole letter.
fn shortened(text: String) -> String {
    if text.len() <= TEXT {
        return text;
    }
    let ends = text
        .char_indices()
        .map(|(start, letter)| start + letter.len_utf8());
    let end = ends.take_while(|end| *end <= TEXT).last().unwrap_or_default();
    text.get(..end).unwrap_or_default().to_owned()
}

/// Whether a body is an error of a registry, and not of another server.
pub(super) fn is_error(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Code>,
    }
    #[derive(Deserialize)]
    struct Code {
        code: String,
    }
    let read: Result<Errors, _> = serde_json::from_slice(json);
    read.is_ok_and(|it| it.errors.first().is_some_and(|error| !error.code.is_empty()))
}

#[cfg(test)]
mod tests;
