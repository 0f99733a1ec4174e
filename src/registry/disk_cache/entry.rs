//! The files of the cache, as JSON. What was not written by this module does not parse, and is ignored.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::EntryKey;
use crate::model::syntax::text::is_one_line;
use crate::model::windows::image::is_digest;
use crate::model::windows::image_facts::ImageContents;
use crate::registry::Detail;

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
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    /// The entry in a file, if it belongs to the key and is plausible.
    pub fn read(bytes: &[u8], key: &EntryKey) -> Option<Self> {
        let entry: AnswerEntry = read(bytes, key)?;
        let is_plausible = match &entry.outcome {
            StoredOutcome::Found { digest } => is_digest(digest),
            StoredOutcome::Missing => true,
        };
        is_plausible.then_some(entry)
    }

    /// The text of the file for the key.
    pub fn text(&self, key: &EntryKey) -> String {
        text(key, self)
    }
}

impl ContentsEntry {
    /// The entry in a file, if it belongs to the key and is plausible.
    pub fn read(bytes: &[u8], key: &EntryKey) -> Option<Self> {
        let entry: ContentsEntry = read(bytes, key)?;
        // The digest is the last part of the key.
        let is_own = key.0.rsplit(' ').next() == Some(&*entry.contents.digest);
        (is_own && is_plausible(&entry.contents)).then_some(entry)
    }

    /// The text of the file for the key.
    pub fn text(&self, key: &EntryKey) -> String {
        text(key, self)
    }
}

/// Whether a registry's answer can have led to these contents. The size of the file bounds their number.
fn is_plausible(contents: &ImageContents) -> bool {
    contents.variants.iter().all(|variant| {
        let words = [&variant.os, &variant.architecture].into_iter();
        let mut words = words.chain(&variant.variant);
        let mut layers = variant.layers.iter();
        is_digest(&variant.digest)
            && layers.all(|layer| is_digest(&layer.digest))
            && words.all(|word| word.len() <= 128 && is_one_line(word))
    })
}
