//! The files of the cache, as JSON. What was not written by this module does not parse, and is ignored.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::EntryKey;
use crate::model::image_facts::{ImageConfig, ImageContents, ImageLayer, ImageVariant, WindowsBase};
use crate::model::revisions::OsVersion;
use crate::model::text::is_one_line;
use crate::registry::Detail;

/// The maximum number of variants; a registry's index has at most as many.
const MOST_VARIANTS: usize = 1000;
/// The maximum length of a text, in bytes; the configuration of an image has at most 1 MiB.
const LONGEST: usize = 64 << 10;
/// The maximum number of layers.
const MOST_LAYERS: usize = 1000;
/// The maximum number of volumes, and of words of a command.
const MOST_TEXTS: usize = 1000;

/// What a registry answered about a reference.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnswerEntry {
    pub looked_up: Timestamp,
    pub outcome: StoredOutcome,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) enum StoredOutcome {
    /// The contents are in an entry of their own.
    Found { digest: String },
    /// There is no such image.
    Missing,
}

/// What is behind a digest.
pub(super) struct ContentsEntry {
    pub detail: Detail,
    pub looked_up: Timestamp,
    pub contents: ImageContents,
}

/// An entry with what it is about.
#[derive(Serialize, Deserialize)]
struct Keyed<T> {
    key: String,
    entry: T,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredContents {
    has_configurations: bool,
    /// Whether configurations were read for their Windows base; older files lack it.
    #[serde(default)]
    has_bases: bool,
    looked_up: Timestamp,
    digest: String,
    variants: Vec<StoredVariant>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredVariant {
    os: String,
    architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    os_version: Option<String>,
    digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    layers: Vec<StoredLayer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<StoredConfig>,
}

#[derive(Serialize, Deserialize)]
struct StoredLayer {
    digest: String,
    size: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredConfig {
    user: String,
    volumes: Vec<String>,
    command: Vec<String>,
    /// The version and the day of the Windows base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<(String, Date)>,
}

fn read<T: for<'t> Deserialize<'t>>(bytes: &[u8], key: &EntryKey) -> Option<T> {
    let keyed: Keyed<T> = serde_json::from_slice(bytes).ok()?;
    (keyed.key == key.0).then_some(keyed.entry)
}

fn text<T: Serialize>(key: &EntryKey, entry: T) -> String {
    let keyed = Keyed {
        key: key.0.clone(),
        entry,
    };
    // Texts, numbers and lists always have a form in JSON; an empty file would not be read.
    serde_json::to_string(&keyed).unwrap_or_default()
}

impl AnswerEntry {
    pub fn read(bytes: &[u8], key: &EntryKey) -> Option<Self> {
        let entry: AnswerEntry = read(bytes, key)?;
        let is_plausible = match &entry.outcome {
            StoredOutcome::Found { digest } => is_digest(digest),
            StoredOutcome::Missing => true,
        };
        is_plausible.then_some(entry)
    }

    pub fn text(&self, key: &EntryKey) -> String {
        text(key, self)
    }
}

impl ContentsEntry {
    pub fn read(bytes: &[u8], key: &EntryKey) -> Option<Self> {
        let stored: StoredContents = read(bytes, key)?;
        // The digest is the last part of the key.
        let is_own = key.0.rsplit(' ').next() == Some(stored.digest.as_str());
        if !is_own || !is_digest(&stored.digest) || stored.variants.len() > MOST_VARIANTS {
            return None;
        }
        let variants: Option<Vec<ImageVariant>> =
            stored.variants.into_iter().map(StoredVariant::variant).collect();
        Some(ContentsEntry {
            detail: if stored.has_configurations && stored.has_bases {
                Detail::Configurations
            } else {
                Detail::Platforms
            },
            looked_up: stored.looked_up,
            contents: ImageContents {
                digest: stored.digest,
                variants: variants?,
            },
        })
    }

    pub fn text(key: &EntryKey, contents: &ImageContents, detail: Detail, looked_up: Timestamp) -> String {
        let stored = StoredContents {
            has_configurations: detail == Detail::Configurations,
            has_bases: true,
            looked_up,
            digest: contents.digest.clone(),
            variants: contents.variants.iter().map(StoredVariant::of).collect(),
        };
        text(key, stored)
    }
}

impl StoredVariant {
    fn of(variant: &ImageVariant) -> Self {
        let ImageVariant {
            os,
            architecture,
            variant,
            os_version,
            digest,
            size,
            layers,
            config,
        } = variant.clone();
        StoredVariant {
            os,
            architecture,
            variant,
            os_version: os_version.map(|version| version.to_string()),
            digest,
            size,
            layers: (layers.into_iter())
                .map(|ImageLayer { digest, size }| StoredLayer { digest, size })
                .collect(),
            config: config.map(|config| StoredConfig {
                user: config.user,
                volumes: config.volumes,
                command: config.command,
                base: config.base.map(|base| (base.version.to_string(), base.date)),
            }),
        }
    }

    /// `None` if this module would not have written it.
    fn variant(self) -> Option<ImageVariant> {
        let words = [&self.os, &self.architecture];
        let words = words.into_iter().chain(&self.variant);
        let are_words = words
            .into_iter()
            .all(|word| word.len() <= 128 && is_one_line(word));
        let has_texts = self.config.as_ref().is_none_or(StoredConfig::is_plausible);
        let has_layers =
            self.layers.len() <= MOST_LAYERS && self.layers.iter().all(|layer| is_digest(&layer.digest));
        if !are_words || !has_texts || !has_layers || !is_digest(&self.digest) {
            return None;
        }
        let os_version = match &self.os_version {
            Some(version) => Some(OsVersion::parse(version)?),
            None => None,
        };
        Some(ImageVariant {
            os: self.os,
            architecture: self.architecture,
            variant: self.variant,
            os_version,
            digest: self.digest,
            size: self.size,
            layers: (self.layers.into_iter())
                .map(|StoredLayer { digest, size }| ImageLayer { digest, size })
                .collect(),
            config: self.config.map(|config| ImageConfig {
                user: config.user,
                volumes: config.volumes,
                command: config.command,
                base: config.base.and_then(|(version, date)| {
                    let version = OsVersion::parse(&version)?;
                    Some(WindowsBase { version, date })
                }),
            }),
        })
    }
}

impl StoredConfig {
    fn is_plausible(&self) -> bool {
        let lists = [&self.volumes, &self.command];
        self.user.len() <= LONGEST
            && lists
                .iter()
                .all(|list| list.len() <= MOST_TEXTS && list.iter().all(|text| text.len() <= LONGEST))
    }
}

/// Whether this is a digest as registries write them.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    matches!(
        (algorithm, hex.len()),
        ("sha256", 64) | ("sha384", 96) | ("sha512", 128)
    ) && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
