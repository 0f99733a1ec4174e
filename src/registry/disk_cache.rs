//! What registries reported, kept on disk for the next command: contents by digest without an end, tags for minutes,
//! missing images for one minute. Failures are not kept: their remedy is often an option of the next command, such as a CA, or
//! something outside of Transom. An entry belongs to one credential, so that it never answers for another one. The folder is
//! only trusted if it belongs to this user, and an entry only if it is what this module writes.

mod entry;
mod folder;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use ring::pbkdf2;

use self::entry::{AnswerEntry, ContentsEntry, StoredOutcome};
use self::folder::CacheFolder;
use super::Detail;
use crate::model::syntax::text::digest_hex;
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::{ImageContents, ImageFacts};

/// How long a tag is believed to name the same digest.
pub const TAG_TTL: SignedDuration = SignedDuration::from_mins(10);
/// How long an image is believed not to exist.
pub const MISSING_TTL: SignedDuration = SignedDuration::from_mins(1);
/// The maximum size of all contents, and of all answers, in bytes each; the oldest are removed.
const MOST_BYTES: u64 = 64 << 20;
/// The maximum number of files of each of them.
const MOST_FILES: usize = 20_000;
/// Makes it slow to guess a password from the name of an entry (PBKDF2 with SHA-256).
const ITERATIONS: NonZeroU32 = NonZeroU32::new(100_000).unwrap();

/// A cache of answers on disk.
pub struct DiskCache {
    answers: CacheFolder,
    contents: CacheFolder,
    /// Holds the salt of the ids of credentials.
    root: CacheFolder,
    /// The ids of credentials, which are slow to compute.
    credentials: Mutex<HashMap<Vec<u8>, String>>,
}

/// Whom an entry belongs to: the same image can be another one for another credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheScope {
    /// The id of the credential.
    credential: String,
    /// The mirrors that are asked first.
    mirrors: String,
}

/// What the cache has of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CachedAnswer {
    /// The image, still believed.
    Fresh(Arc<ImageFacts>),
    /// The image, but its tag may have moved since.
    Stale(Arc<ImageFacts>),
}

impl DiskCache {
    /// The cache in the platform's cache folder of this user; creates nothing until something is stored.
    ///
    /// # Errors
    /// If the environment names no such folder, or the existing one belongs to another user.
    pub fn of_user() -> Result<Self, String> {
        // The XDG specification says to ignore relative paths.
        let absolute = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let folder = cache_folder(std::env::consts::OS, absolute)
            .ok_or_else(|| format!("the environment names no cache folder: set {}", variables()))?;
        DiskCache::at(&folder.join("transom"))
    }

    /// The cache below a folder.
    ///
    /// # Errors
    /// If the folder exists and belongs to another user, or others may write to it.
    pub fn at(folder: &Path) -> Result<Self, String> {
        // The version of the format is in the name: a newer program does not read an older cache, nor the reverse.
        let root = folder.join("images-v2");
        Ok(DiskCache {
            answers: CacheFolder::open(root.join("answers"), "json")?,
            contents: CacheFolder::open(root.join("contents"), "json")?,
            root: CacheFolder::open(root, "salt")?,
            credentials: Mutex::default(),
        })
    }

    /// The scope of requests with a credential, which is any bytes that contain user and secret, and empty for anonymous
    /// requests; and with mirrors.
    ///
    /// # Errors
    /// If the salt of the cache cannot be read or written.
    pub fn scope(&self, credential: &[u8], mirrors: &str) -> Result<CacheScope, String> {
        let credential = if credential.is_empty() {
            "anonymous".to_owned()
        } else {
            self.credential_id(credential)?
        };
        Ok(CacheScope {
            credential,
            mirrors: mirrors.to_owned(),
        })
    }

    fn credential_id(&self, secret: &[u8]) -> Result<String, String> {
        let known = || self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = known().get(secret) {
            return Ok(id.clone());
        }
        let salt = self.root.salt()?;
        let mut derived = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            ITERATIONS,
            &salt,
            secret,
            &mut derived,
        );
        let id = digest_hex(&derived, 32);
        known().insert(secret.to_owned(), id.clone());
        Ok(id)
    }

    /// What is known of an image with at least this detail.
    pub fn get(
        &self,
        scope: &CacheScope,
        image: &ImageRef<'_>,
        detail: Detail,
        now: Timestamp,
    ) -> Option<CachedAnswer> {
        if let Some(digest) = image.digest
            && let Some((contents, looked_up)) = self.contents(scope, image, digest, detail)
        {
            return Some(CachedAnswer::Fresh(facts(looked_up, Some(contents))));
        }
        let key = EntryKey::of(scope, image, reference(image));
        let answer = AnswerEntry::read(&self.answers.read(&key.file())?, &key)?;
        let age = now.duration_since(answer.looked_up);
        if age < -MISSING_TTL {
            // The clock was wrong, now or then.
            return None;
        }
        let is_young = age <= MISSING_TTL;
        match answer.outcome {
            StoredOutcome::Missing if is_young => Some(CachedAnswer::Fresh(facts(answer.looked_up, None))),
            StoredOutcome::Missing => None,
            StoredOutcome::Found { digest } => {
                let (contents, _) = self.contents(scope, image, &digest, detail)?;
                let facts = facts(answer.looked_up, Some(contents));
                Some(if age <= TAG_TTL {
                    CachedAnswer::Fresh(facts)
                } else {
                    CachedAnswer::Stale(facts)
                })
            }
        }
    }

    fn contents(
        &self,
        scope: &CacheScope,
        image: &ImageRef<'_>,
        digest: &str,
        detail: Detail,
    ) -> Option<(ImageContents, Timestamp)> {
        let key = EntryKey::of(scope, image, digest);
        let entry = ContentsEntry::read(&self.contents.read(&key.file())?, &key)?;
        (entry.detail.includes(detail)).then_some((entry.contents, entry.looked_up))
    }

    /// Stores the answer about an image. A cache that cannot be written is not an error: the next
    /// command asks again.
    pub fn put(&self, scope: &CacheScope, image: &ImageRef<'_>, detail: Detail, answer: &ImageFacts) {
        let looked_up = answer.looked_up;
        let outcome = match &answer.found {
            None => StoredOutcome::Missing,
            Some(contents) => {
                let key = EntryKey::of(scope, image, &contents.digest);
                let entry = ContentsEntry {
                    detail,
                    looked_up,
                    contents: contents.clone(),
                };
                self.contents.write(&key.file(), &entry.text(&key));
                let digest = entry.contents.digest;
                StoredOutcome::Found { digest }
            }
        };
        let key = EntryKey::of(scope, image, reference(image));
        let text = AnswerEntry { looked_up, outcome }.text(&key);
        self.answers.write(&key.file(), &text);
    }

    /// Removes the oldest entries beyond the limits of the cache.
    pub fn trim(&self) {
        self.trim_to(MOST_BYTES, MOST_FILES);
    }

    fn trim_to(&self, bytes: u64, files: usize) {
        self.answers.trim(bytes, files);
        self.contents.trim(bytes, files);
    }
}

fn facts(looked_up: Timestamp, found: Option<ImageContents>) -> Arc<ImageFacts> {
    Arc::new(ImageFacts { looked_up, found })
}

/// What the registry is asked for.
fn reference<'i>(image: &ImageRef<'i>) -> &'i str {
    image.digest.or(image.tag).unwrap_or("latest")
}

/// What an entry is about. It is in the entry itself too, so that an entry in a wrong file is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
struct EntryKey(String);

impl EntryKey {
    fn of(scope: &CacheScope, image: &ImageRef<'_>, reference: &str) -> Self {
        let CacheScope { credential, mirrors } = scope;
        // None of the parts can contain a space.
        EntryKey(format!(
            "{credential} {mirrors} {} {} {reference}",
            image.registry, image.repository
        ))
    }

    fn file(&self) -> String {
        format!("{}.json", digest_hex(self.0.as_bytes(), 64))
    }
}

/// The cache folder of this user, from the environment.
fn cache_folder(os: &str, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let in_home = |folders: &[&str]| {
        let home = variable("HOME")?;
        Some(folders.iter().fold(home, |path, folder| path.join(folder)))
    };
    match os {
        "windows" => variable("LOCALAPPDATA"),
        "macos" => in_home(&["Library", "Caches"]),
        _ => variable("XDG_CACHE_HOME").or_else(|| in_home(&[".cache"])),
    }
}

fn variables() -> &'static str {
    if cfg!(windows) {
        "LOCALAPPDATA"
    } else if cfg!(target_os = "macos") {
        "HOME"
    } else {
        "XDG_CACHE_HOME or HOME"
    }
}

#[cfg(test)]
mod tests;
