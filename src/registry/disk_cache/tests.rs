//! The cache in a folder of its own: what it keeps for how long, for whom, and what it does not believe.

use std::fs;
use std::time::{Duration, SystemTime};

use super::*;
use crate::model::windows::image_facts::{ImageConfig, ImageLayer, ImageVariant, WindowsBase};
use crate::model::windows::windows_updates::OsVersion;

const TAG: &str = "registry.example/shop/web:1";

fn digest(letter: char) -> String {
    format!("sha256:{}", String::from(letter).repeat(64))
}

fn image(text: &str) -> ImageRef<'_> {
    ImageRef::parse(text).unwrap()
}

fn now() -> Timestamp {
    "2026-11-23T05:00:00Z".parse().unwrap()
}

fn later(minutes: i64) -> Timestamp {
    now() + SignedDuration::from_mins(minutes)
}

/// An index with everything that an entry can have.
fn found() -> ImageFacts {
    let windows = ImageVariant {
        digest: digest('b'),
        size: Some(123_456_789),
        layers: vec![ImageLayer {
            digest: digest('e'),
            size: 123_456_789,
        }],
        config: Some(ImageConfig {
            user: "ContainerUser".to_owned(),
            volumes: vec!["C:\\data".to_owned()],
            command: vec!["cmd".to_owned(), "/c".to_owned(), "echo\n\"1\"".to_owned()],
            base: WindowsBase::of_history("Install update 10.0.20348.2700", "2026-01-02T03:04:05Z"),
        }),
        ..ImageVariant::new("windows", "amd64", "10.0.20348.2700")
    };
    let linux = ImageVariant {
        variant: Some("v8".to_owned()),
        digest: digest('c'),
        ..ImageVariant::new("linux", "arm64", "")
    };
    let build_only = ImageVariant {
        digest: digest('d'),
        ..ImageVariant::new("windows", "", "10.0.17763")
    };
    ImageFacts {
        looked_up: now(),
        found: Some(ImageContents {
            digest: digest('a'),
            variants: vec![windows, linux, build_only],
        }),
    }
}

struct Cache {
    disk: DiskCache,
    folder: tempfile::TempDir,
    anonymous: CacheScope,
}

impl Cache {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::at(folder.path()).unwrap();
        let anonymous = disk.scope(b"", "").unwrap();
        Cache {
            disk,
            folder,
            anonymous,
        }
    }

    fn put(&self, answer: &ImageFacts) {
        let (disk, scope) = (&self.disk, &self.anonymous);
        disk.put(scope, &image(TAG), Detail::Configurations, answer);
    }

    fn get(&self, text: &str, at: Timestamp) -> Option<CachedAnswer> {
        (self.disk).get(&self.anonymous, &image(text), Detail::Configurations, at)
    }

    /// All files of the cache.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files
    }
}

#[test]
fn contents_are_kept_and_a_tag_only_for_minutes() {
    let cache = Cache::new();
    assert_eq!(cache.get(TAG, now()), None);
    assert!(
        cache.files().is_empty(),
        "nothing is created before something is stored"
    );
    let facts = found();
    cache.put(&facts);
    let known = Arc::new(facts);
    assert_eq!(
        cache.get(TAG, later(9)),
        Some(CachedAnswer::Fresh(Arc::clone(&known)))
    );
    assert_eq!(
        cache.get(TAG, later(11)),
        Some(CachedAnswer::Stale(Arc::clone(&known)))
    );
    // By its digest forever, with or without a tag.
    for text in [
        format!("registry.example/shop/web@{}", digest('a')),
        format!("{TAG}@{}", digest('a')),
    ] {
        let years = later(3 * 365 * 24 * 60);
        assert_eq!(
            cache.get(&text, years),
            Some(CachedAnswer::Fresh(Arc::clone(&known))),
            "{text}"
        );
    }
    for other in [
        "registry.example/shop/web:2",
        "registry.example/shop/api:1",
        "other.example/shop/web:1",
        "shop/web:1",
    ] {
        assert_eq!(cache.get(other, now()), None, "{other}");
    }
    // A clock that was wrong.
    assert_eq!(cache.get(TAG, later(-60)), None);
}

#[test]
fn a_missing_image_is_believed_for_one_minute() {
    let missing = ImageFacts {
        looked_up: now(),
        found: None,
    };
    let cache = Cache::new();
    cache.put(&missing);
    assert_eq!(
        cache.get(TAG, later(1)),
        Some(CachedAnswer::Fresh(Arc::new(missing)))
    );
    assert_eq!(cache.get(TAG, later(2)), None);
}

#[test]
fn less_detail_is_not_enough_for_more() {
    let cache = Cache::new();
    let get = |detail| {
        cache
            .disk
            .get(&cache.anonymous, &image(TAG), detail, now())
            .is_some()
    };
    let put = |detail| {
        (cache.disk).put(&cache.anonymous, &image(TAG), detail, &found());
    };
    put(Detail::Platforms);
    assert_eq!(
        (get(Detail::Platforms), get(Detail::Configurations)),
        (true, false)
    );
    put(Detail::Configurations);
    assert_eq!(
        (get(Detail::Platforms), get(Detail::Configurations)),
        (true, true)
    );
}

#[test]
fn an_entry_answers_only_for_its_credential_and_mirror() {
    let cache = Cache::new();
    let scopes = [
        cache.disk.scope(b"", ""),
        cache.disk.scope(b"alice", ""),
        cache.disk.scope(b"bob", ""),
        cache.disk.scope(b"alice", "mirror.example"),
        cache.disk.scope(b"", "mirror.example"),
    ];
    let scopes = scopes.map(Result::unwrap);
    for (at, scope) in scopes.iter().enumerate() {
        let get = |scope| cache.disk.get(scope, &image(TAG), Detail::Configurations, now());
        assert_eq!(get(scope), None, "{scope:?}");
        (cache.disk).put(scope, &image(TAG), Detail::Configurations, &found());
        for (other_at, other) in scopes.iter().enumerate() {
            assert_eq!(get(other).is_some(), other_at <= at, "{scope:?} {other:?}");
        }
    }
    // A later process finds the same id, and another machine none that is equal.
    let again = DiskCache::at(cache.folder.path()).unwrap().scope(b"alice", "");
    assert_eq!(again.as_ref(), Ok(&scopes[1]));
    assert_ne!(Cache::new().disk.scope(b"alice", ""), again);
    // No file contains a secret.
    for file in cache.files() {
        let text = fs::read(&file).unwrap();
        let has = |secret: &[u8]| text.windows(secret.len()).any(|part| part == secret);
        assert!(!has(b"alice") && !has(b"bob"), "{}", file.display());
    }
}

#[test]
fn what_this_program_did_not_write_is_ignored() {
    let good = Cache::new();
    good.put(&found());
    let files = good.files();
    assert_eq!(files.len(), 2, "{files:?}");
    let replace = |text: &str, from: &str, to: &str| {
        let replaced = text.replace(from, to);
        assert_ne!(replaced, text, "{from}");
        replaced
    };
    let damages: [&dyn Fn(&str) -> String; 13] = [
        &|_| String::new(),
        &|text| text[..text.len() / 2].to_owned(),
        &|_| "[]".to_owned(),
        &|_| format!("{}1", "[".repeat(100_000)),
        &|text| replace(text, "anonymous", "somebody"),
        &|text| replace(text, "shop/web", "shop/api"),
        &|text| replace(text, &digest('a'), "sha256:../../x"),
        &|text| {
            text.replace("10.0.20348.2700", "10.0.20348.2700.1.1")
                + if text.contains("20348") { "" } else { " x" }
        },
        &|text| {
            text.replace("\"linux\"", "\"li\\u001b[31mnux\"") + if text.contains("linux") { "" } else { "x" }
        },
        &|text| text.replace(&digest('b'), "none") + if text.contains("10.0") { "" } else { "x" },
        &|text| text.replace("123456789", "-1") + if text.contains("10.0") { "" } else { "x" },
        &|text| format!("{text}{}", " ".repeat(5 << 20)),
        &|text| replace(text, "05:00:00", "25:00:00"),
    ];
    for (number, damage) in damages.iter().enumerate() {
        for file in &files {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, damage(&text)).unwrap();
            assert_eq!(good.get(TAG, now()), None, "{number} {}", file.display());
            fs::write(file, text).unwrap();
        }
    }
    assert!(good.get(TAG, now()).is_some());
    // The entry of another image in this place.
    let [answer, contents] = &files[..] else { panic!() };
    let text = fs::read(answer).unwrap();
    fs::copy(contents, answer).unwrap();
    assert_eq!(good.get(TAG, now()), None);
    fs::write(answer, text).unwrap();
    // A folder in the place of a file, and a file in the place of the folder.
    fs::remove_file(answer).unwrap();
    fs::create_dir(answer).unwrap();
    assert_eq!(good.get(TAG, now()), None);
    good.put(&found());
    assert_eq!(good.get(TAG, now()), None);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("images-v2"), "").unwrap();
    assert!(DiskCache::at(folder.path()).is_err());
}

#[test]
fn an_entry_of_the_answer_of_a_digest_is_that_of_the_digest() {
    // An index that was stored for another digest must not answer for this one.
    let cache = Cache::new();
    cache.put(&found());
    let pinned = format!("registry.example/shop/web@{}", digest('e'));
    assert_eq!(cache.get(&pinned, now()), None);
}

#[cfg(unix)]
#[test]
fn only_this_user_reads_and_writes_the_cache() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let cache = Cache::new();
    cache.disk.scope(b"alice", "").unwrap();
    cache.put(&found());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = cache.files();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
        assert_eq!(mode(file.parent().unwrap()), 0o700);
    }
    // What others could have written.
    let entry = files
        .iter()
        .find(|file| file.to_string_lossy().contains("answers"))
        .unwrap();
    fs::set_permissions(entry, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(cache.get(TAG, now()), None);
    fs::set_permissions(entry, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(cache.get(TAG, now()).is_some());
    let copy = cache.folder.path().join("copy");
    fs::rename(entry, &copy).unwrap();
    symlink(&copy, entry).unwrap();
    assert_eq!(cache.get(TAG, now()), None);
    let root = cache.folder.path().join("images-v2");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    let why = DiskCache::at(cache.folder.path()).err().unwrap();
    assert!(
        why.ends_with("belongs to another user, or others may write to it"),
        "{why}"
    );
}

#[test]
fn the_oldest_entries_go() {
    let cache = Cache::new();
    let tags: Vec<String> = (0..6)
        .map(|tag| format!("registry.example/shop/web:{tag}"))
        .collect();
    for (age, tag) in tags.iter().rev().enumerate() {
        (cache.disk).put(
            &cache.anonymous,
            &image(tag),
            Detail::Configurations,
            &ImageFacts {
                looked_up: now(),
                found: None,
            },
        );
        for file in cache.files() {
            // The files of earlier rounds become older.
            let written = SystemTime::now() - Duration::from_secs(7200 - 600 * age as u64);
            let opened = fs::File::options().write(true).open(&file).unwrap();
            if opened.metadata().unwrap().modified().unwrap().elapsed().unwrap() < Duration::from_secs(600) {
                opened.set_modified(written).unwrap();
            }
        }
    }
    let unfinished = cache.folder.path().join("images-v2/answers/.writing-1-1");
    let foreign = cache.folder.path().join("images-v2/answers/notes.txt");
    for path in [&unfinished, &foreign] {
        fs::write(path, "x").unwrap();
        let old = SystemTime::now() - Duration::from_secs(86_400);
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    cache.disk.trim_to(1 << 20, 4);
    let left: Vec<bool> = tags.iter().map(|tag| cache.get(tag, now()).is_some()).collect();
    assert_eq!(left, [true, true, true, true, false, false]);
    assert!(!unfinished.exists() && foreign.exists());
    let bytes = fs::metadata(cache.files().iter().find(|file| **file != foreign).unwrap())
        .unwrap()
        .len();
    cache.disk.trim_to(bytes * 2, 4);
    let left: Vec<bool> = tags.iter().map(|tag| cache.get(tag, now()).is_some()).collect();
    assert_eq!(left, [true, true, false, false, false, false]);
}

#[test]
fn the_folder_is_that_of_the_platform() {
    let from = |os: &str, known: &[(&str, &str)]| {
        cache_folder(os, |name| {
            let value = known.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| PathBuf::from(*value))
        })
    };
    let all = [
        ("HOME", "/home/a"),
        ("LOCALAPPDATA", r"C:\Users\a\AppData\Local"),
        ("XDG_CACHE_HOME", "/tmp/c"),
    ];
    for (os, known, folder) in [
        ("linux", &all[..], "/tmp/c"),
        ("linux", &all[..2], "/home/a/.cache"),
        ("freebsd", &all[..1], "/home/a/.cache"),
        ("macos", &all, "/home/a/Library/Caches"),
        ("windows", &all, r"C:\Users\a\AppData\Local"),
    ] {
        assert_eq!(from(os, known), Some(folder.into()), "{os}");
    }
    for os in ["linux", "macos"] {
        assert_eq!(from(os, &all[1..2]), None, "{os}");
    }
    assert_eq!(from("windows", &all[..1]), None);
}

#[test]
fn a_version_keeps_its_revision_or_has_none() {
    let cache = Cache::new();
    cache.put(&found());
    let Some(CachedAnswer::Fresh(facts)) = cache.get(TAG, now()) else {
        panic!()
    };
    let versions: Vec<Option<OsVersion>> = facts
        .found
        .as_ref()
        .unwrap()
        .variants
        .iter()
        .map(|it| it.os_version)
        .collect();
    assert_eq!(versions[0].unwrap().revision, Some(2700));
    assert_eq!(versions[1], None);
    assert_eq!(versions[2].unwrap().revision, None);
}
