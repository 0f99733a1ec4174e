//! What a stranger reads before an installation is true: tests that pages name exist, files that releases need are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names of all functions with a test attribute.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some(name) = name.filter(|_| is_test) {
                names.insert(name.split('(').next().unwrap_or_default().to_owned());
                is_test = false;
            }
        }
    }
    names
}

/// What a page has between single backquotes.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

#[test]
fn tests_that_pages_name_exist() {
    let tests = tests();
    assert!(tests.len() > 500, "only {} tests were found", tests.len());
    let mut named = 0;
    let mut missing = Vec::new();
    for page in [
        PROOFS,
        "docs/contributing/measurements.md",
        "docs/contributing/testing.md",
    ] {
        let text = read(page);
        // No flag, field or label has so many underscores.
        for name in
            quoted(&text).filter(|name| name.matches('_').count() >= 4 && !name.contains(['/', ' ', '.']))
        {
            named += 1;
            if !tests.contains(name) {
                missing.push(format!("{page}: there is no test {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 60, "only {named} tests are named");
}

/// The tests of each practice and threat.
const PROOFS: &str = "tests/good-practices.md";

/// The rows of a page's tables with two columns.
fn rows(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| {
        let cells = row.trim_matches('|').split_once(" | ");
        let (subject, answer) = cells.unwrap_or_else(|| panic!("{row}"));
        (subject.trim(), answer.trim())
    });
    cells.filter(|(subject, _)| !subject.starts_with("practice") && *subject != "threat")
}

#[test]
fn every_practice_and_every_threat_has_a_test_or_a_reason() {
    let (page, proofs) = (read("docs/explanation/good-practices.md"), read(PROOFS));
    let mut proven: BTreeSet<&str> = rows(&proofs)
        .filter(|(_, tests)| tests.starts_with('`'))
        .map(|(subject, _)| subject)
        .collect();
    let mut threats = BTreeSet::new();
    for (subject, answer) in rows(&page) {
        assert!(!subject.is_empty() && !answer.is_empty(), "{subject}: {answer}");
        let has_reason = answer.starts_with("Out of ") || answer.starts_with("Not ");
        assert!(proven.remove(subject) || has_reason, "{subject} has no test");
        let numbers = subject.split(':').next().unwrap_or_default().split(", ");
        threats.extend(numbers.filter_map(|number| number.parse::<u32>().ok()));
    }
    assert!(threats.iter().copied().eq(1..=18), "{threats:?}");
    assert!(proven.is_empty(), "tests of other subjects: {proven:?}");
}

#[test]
fn releases_are_signed_without_rights_that_a_job_does_not_need() {
    let release = read(".github/workflows/release.yml");
    // Only the job that publishes may write.
    let (before, publish) = release.split_once("\n  publish:\n").unwrap();
    assert!(!before.contains(": write"), "a build may write");
    for part in [
        "id-token: write",
        "environment: release",
        "cosign sign ",
        "cosign attest ",
        "attest-build-provenance@",
        "SHA256SUMS",
    ] {
        assert!(publish.contains(part), "the release has no {part}");
    }
    for file in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\npermissions: {}\n"), "{}", path.display());
        for line in text.lines().filter(|line| line.contains("uses: ")) {
            let (_, digest) = line.split_once('@').unwrap_or_else(|| panic!("{line}"));
            let digest = digest.split(' ').next().unwrap_or_default();
            let is_digest = digest.len() == 40 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_digest && line.contains(" # v"), "{}: {line}", path.display());
        }
    }
    // Every script that the workflows call is there.
    for name in quoted_scripts(&release).chain(quoted_scripts(&read(".github/workflows/ci.yml"))) {
        assert!(root().join(name).exists(), "{name}");
    }
}

fn quoted_scripts(workflow: &str) -> impl Iterator<Item = &str> {
    let words = workflow.split([' ', '\n', '"']);
    words.filter(|word| word.starts_with(".ci/"))
}

#[test]
fn the_base_image_is_pinned_by_digest() {
    let dockerfile = read("Dockerfile");
    for line in dockerfile.lines().filter(|line| line.starts_with("FROM ")) {
        assert!(line.contains("@sha256:") || line == "FROM scratch", "{line}");
    }
    let version = format!("rust:{}-alpine@sha256:", env!("CARGO_PKG_RUST_VERSION"));
    assert!(
        dockerfile.contains(&version),
        "the image is not built with {version}"
    );
}
