//! `transom image` and `check --registry` against a real registry (Debian's docker-registry), with a home of their own:
//! what they print, what they keep, and with whose credentials. Without the program they say so and prove nothing.
#![cfg(unix)]

mod check;
mod connections;
mod credentials;
mod pulls;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::command::{CommandRun, assert_valid_reports, is_up_to_date, transom_in};
use crate::support::registry::{LTSC2019, LTSC2022, LTSC2025, Media, Registry, linux, variant, windows};
use crate::support::server::free_port;

/// A user's home, with a cache and a configuration of docker.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cache", "docker", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Home { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> CommandRun {
        self.run_with(arguments, "")
    }

    fn run_with(&self, arguments: &[&str], input: &str) -> CommandRun {
        self.run_in(&[], arguments, input)
    }

    /// With more variables of the environment.
    fn run_in(&self, more: &[(&str, &Path)], arguments: &[&str], input: &str) -> CommandRun {
        let (cache, docker, work) = (self.path("cache"), self.path("docker"), self.path("work"));
        let bin = std::env::join_paths(std::iter::once(self.path("bin")).chain(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        )));
        let bin = bin.unwrap();
        let variables: [(&str, &Path); 6] = [
            ("HOME", self.folder.path()),
            ("XDG_CACHE_HOME", &cache),
            ("DOCKER_CONFIG", &docker),
            // No credentials of podman.
            ("XDG_RUNTIME_DIR", &work),
            ("REGISTRY_AUTH_FILE", Path::new("")),
            ("PATH", Path::new(&bin)),
        ];
        transom_in(&work, &[&variables, more].concat(), arguments, input)
    }

    /// The files of the cache.
    fn cached(&self) -> Vec<std::path::PathBuf> {
        let mut files = Vec::new();
        for folder in ["answers", "contents"] {
            let folder = self.path("cache/transom/images-v2").join(folder);
            let entries = fs::read_dir(folder).into_iter().flatten();
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
        files
    }
}

/// An output without what differs in each run: the port, the time and what depends on them.
fn stable(text: &str, registry: &Registry) -> String {
    let text = text.replace(&registry.host(), "localhost:5000");
    let mut out = String::new();
    let mut rest = text.as_str();
    // As in 2026-11-23T05:00:00Z.
    while let Some(at) = rest.find('T') {
        let (before, after) = rest.split_at(at);
        let is_time = after.get(3..4) == Some(":") && before.ends_with(|c: char| c.is_ascii_digit());
        if let (true, Some(end)) = (is_time, after.find('Z')) {
            out.push_str(&before[..before.len() - "2026-11-23".len()]);
            out.push_str("(time)");
            rest = &after[end + 1..];
        } else {
            out.push_str(before);
            out.push('T');
            rest = &after[1..];
        }
    }
    out + rest
}

fn node(name: &str, kernel: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": kernel}}})
}

fn nodes() -> String {
    let items = [
        node("old-1", "10.0.17763.6293"),
        node("old-2", "10.0.17763.6293"),
        node("mid-1", "10.0.20348.2700"),
        node("new-1", "10.0.26100.1742"),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[test]
fn an_image_is_shown_with_its_variants_where_it_runs_and_on_which_nodes() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let app = |version: &str| {
        let app = windows(version).user("ContainerUser").volume("c:\\data");
        app.command(&["app.exe", "/name", "Contoso Ltd"], &[])
            .history(&format!("Install update {version}"), "2024-09-06T22:11:41Z")
            .layer(3 << 20)
    };
    let variants = [
        linux(),
        variant("linux", "arm64", ""),
        app(LTSC2019),
        app(LTSC2022),
    ];
    registry.push_index("shop/billing:1.4", &variants);
    registry.push_image(Media::Docker, "shop/linux:1", &linux().command(&["/app"], &[]));
    registry.push_index("shop/empty:1", &[]);
    let many: Vec<_> = (0..10)
        .map(|revision| windows(&format!("10.0.20348.{revision}")))
        .collect();
    registry.push_index("shop/many:1", &many);
    registry.push_buildx_index("shop/buildx:1", &[windows(LTSC2022).without_version_in_index()]);
    let image = registry.reference("shop/billing:1.4");
    let home = Home::new();
    let run = home.run_with(&["image", "--facts", "-", &image], &nodes());
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{}", run.out);
    insta::assert_snapshot!("image_text", stable(&run.out, &registry));
    let run = home.run(&[
        "image",
        "-o",
        "json",
        "--platform",
        "windows(10.0.20348)/amd64",
        &image,
    ]);
    assert_eq!(run.status, 0, "{}", run.err);
    insta::assert_snapshot!("image_json", stable(&run.out, &registry));
    let others = ["shop/linux:1", "shop/buildx:1", "shop/none:1"].map(|image| registry.reference(image));
    let run = home.run(&["image", &others[0], &others[1], &others[2]]);
    assert_eq!(run.status, 1, "{}", run.err);
    insta::assert_snapshot!("image_others", stable(&run.out, &registry));
    // Releases and nodes are not those of the Linux variants.
    let run = home.run_with(
        &["image", "--facts", "-", "--platform", "linux/amd64", &image],
        &nodes(),
    );
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(!run.out.contains("Windows"), "{}", run.out);
    let run = home.run(&["image", &registry.reference("shop/empty:1")]);
    assert!(
        run.status == 1 && run.out.contains("the index lists no image"),
        "{}",
        run.out
    );
    let many = registry.reference("shop/many:1");
    let run = home.run(&["image", &many]);
    assert!(
        run.out
            .contains("the configurations of 2 Windows variants were not read"),
        "{}",
        run.out
    );
    let variants = home.run(&["image", "-o", "json", &many]).json()["images"][0]["variants"].clone();
    let read = variants
        .as_array()
        .unwrap()
        .iter()
        .map(|variant| variant["user"].is_string());
    assert_eq!(
        read.collect::<Vec<_>>(),
        [[false; 2].as_slice(), &[true; 8]].concat()
    );
}

#[test]
fn without_a_registry_the_builds_are_those_that_the_name_shows() {
    let home = Home::new();
    let offline = |more: &[&str], image: &str| {
        let run = home.run_with(&[&["image", "--offline"], more, &[image]].concat(), &nodes());
        // Whether the image exists is not known.
        assert_eq!(run.status, 2, "{}{}", run.out, run.err);
        run
    };
    let windows = "mcr.microsoft.com/windows/servercore:ltsc2022";
    let text = offline(&["--facts", "-"], windows).out;
    for part in [
        "by its name, as plan reads it: windows(10.0.20348); Microsoft publishes this tag for this build only",
        "ltsc2019         10.0.17763  no                 no",
        "ltsc2022         10.0.20348  yes                yes",
        "2 of 4 Windows nodes run it with process isolation",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let report = offline(&["-o", "json"], windows).json();
    assert_valid_reports("image", &[&report]);
    let image = &report["images"][0];
    assert_eq!(
        image["byName"],
        json!({"os": "windows", "builds": ["10.0.20348"], "isCertain": true})
    );
    assert_eq!(
        (&image["status"], &image["variants"]),
        (&json!("unknown"), &json!([]))
    );
    for (image, part) in [
        (
            "corp.example/shop/billing:1.4-ltsc2019",
            "windows(10.0.17763); the registry may have other variants",
        ),
        (
            "mcr.microsoft.com/dotnet/framework/aspnet:4.8",
            "windows(10.0.14393), windows(10.0.17763); the registry may have other variants",
        ),
        (
            "nginx:1.29-alpine",
            "by its name, as plan reads it: linux; the registry may have other variants",
        ),
    ] {
        let text = offline(&[], image).out;
        assert!(text.contains(part), "{image}: {text}");
        assert_eq!(
            text.contains("WINDOWS RELEASE"),
            part.starts_with("windows"),
            "{text}"
        );
    }
    let of_platform = offline(&["--platform", "windows/amd64:10.0.17763"], windows).out;
    assert!(!of_platform.contains("WINDOWS RELEASE"), "{of_platform}");
    let unknown = offline(&[], "corp.example/shop/billing:1.4").out;
    assert!(!unknown.contains("by its name"), "{unknown}");
}

#[test]
fn the_page_about_images_shows_what_is_printed() {
    const PAGE: &str = "docs/how-to/images.md";
    const START: &str = "```text\n$ transom image registry.example.com/shop/billing:1.4\n";
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let app = |version: &str| {
        let app = windows(version)
            .user("ContainerUser")
            .volume("c:\\data")
            .history(&format!("Install update {version}"), "2024-09-06T22:11:41Z")
            .layer(30 << 20);
        app.command(&["dotnet", "billing.dll"], &[])
    };
    registry.push_index("shop/billing:1.4", &[linux(), app(LTSC2019), app(LTSC2022)]);
    let image = registry.reference("shop/billing:1.4");
    let run = Home::new().run(&["image", &image]);
    let printed = stable(&run.out, &registry).replace("localhost:5000", "registry.example.com");
    let printed = printed.replace("(time)", "2026-11-23T05:00:00Z");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (_, after) = rest.split_once("```\n").unwrap();
    let page = format!("{before}{START}{printed}```\n{after}");
    is_up_to_date(PAGE, &page, "offline image::");
}

#[test]
fn the_exit_status_is_that_of_the_worst_image() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    let (app, missing) = (registry.reference("app:1"), registry.reference("app:2"));
    let silent = format!("localhost:{}/app:1", free_port());
    let home = Home::new();
    let status = |arguments: &[&str]| home.run(&[&["image"], arguments].concat()).status;
    assert_eq!(status(&[&app]), 0);
    assert_eq!(status(&[&app, &missing]), 1);
    assert_eq!(status(&["--platform", "linux", &app]), 1);
    assert_eq!(status(&[&app, &missing, &silent]), 2);
    assert_eq!(status(&["App"]), 2);
    let run = home.run(&["image", "--platform", "ltsc2022", &app]);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.err
            .contains("write windows/amd64, or windows/amd64:10.0.20348 for ltsc2022"),
        "{}",
        run.err
    );
    let run = home.run(&["image", "--limit", "x", &app]);
    assert!(
        run.status == 2 && run.err.contains("write a whole number"),
        "{}",
        run.err
    );
    let none = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}).to_string();
    let run = home.run_with(&["image", "--facts", "-", &app], &none);
    assert!(
        run.status == 2 && run.err.contains("- has no Windows node"),
        "{}",
        run.err
    );
    assert_eq!(status(&[]), 2);
    let run = home.run(&["image", "-o", "json", &silent]);
    let report = run.json();
    assert_eq!(report["images"][0]["status"], "unknown", "{report:#}");
    assert_valid_reports("image", &[&report]);
    let message = report["images"][0]["message"].as_str().unwrap();
    assert!(message.contains("refused"), "{message}");
    // Nodes that cannot be read are an error too.
    let run = home.run(&["image", "--facts", "none.yaml", &app]);
    assert_eq!(run.status, 2, "{}", run.err);
    assert!(run.err.contains("none.yaml"), "{}", run.err);
}

#[test]
fn what_is_known_is_not_requested_again() {
    let Some(mut registry) = Registry::start_or_skip() else {
        return;
    };
    let digest = registry.push_index(
        "shop/billing:1.4",
        &[linux(), windows(LTSC2019), windows(LTSC2022)],
    );
    let tagged = registry.reference("shop/billing:1.4");
    let pinned = registry.reference(&format!("shop/billing@{digest}"));
    let missing = registry.reference("shop/billing:1.5");
    let home = Home::new();
    let images = [&*tagged, &*pinned, &*missing];
    let json = |options: &[&str]| {
        let run = home.run(&[&["image", "-o", "json"], options, &images].concat());
        let mut report = run.json();
        assert_valid_reports("image", &[&report]);
        for image in report["images"].as_array_mut().unwrap() {
            let image = image.as_object_mut().unwrap();
            image.remove("cached");
            image.remove("lookedUp");
        }
        (run.status, report)
    };
    let first = json(&[]);
    assert_eq!(first.0, 1, "{:#}", first.1);
    let requests = registry.requests().len();
    assert_eq!(json(&[]), first);
    assert_eq!(registry.requests().len(), requests, "{:#?}", registry.requests());
    // With --refresh, what the tag names is one request; what is behind a digest stays known.
    assert_eq!(json(&["--refresh"]), first);
    let again: Vec<String> = registry.requests().split_off(requests);
    assert_eq!(again.len(), 2, "{again:#?}");
    // What is known is only confirmed, which a registry that counts pulls does not count.
    let heads = again.iter().filter(|request| request.starts_with("HEAD "));
    assert_eq!(heads.count(), 1, "{again:#?}");
    assert!(
        again.iter().all(|request| request.contains("/manifests/1.")),
        "{again:#?}"
    );
    // A tag that moved.
    registry.push_index("shop/billing:1.4", &[windows(LTSC2025)]);
    assert_eq!(json(&[]), first);
    let (_, moved) = json(&["--refresh"]);
    assert_ne!(moved, first.1);
    assert_eq!(moved["images"][0]["variants"][0]["osVersion"], LTSC2025);
    assert_eq!(moved["images"][1], first.1["images"][1]);
    registry.stop();
    assert_eq!(json(&[]).1, moved);
    assert_eq!(json(&["--offline"]).1, moved);
    assert_eq!(json(&["--refresh"]).0, 2, "the registry does not answer");
    // The failure is not kept, and the cached answer names its source.
    let run = home.run(&["image", &missing]);
    assert!(
        run.out.contains(" UTC; --refresh asks again)\n") && run.out.contains("no such image"),
        "{}",
        run.out
    );
    registry.resume();
    registry.push_index("shop/billing:1.5", &[windows(LTSC2025)]);
    assert_eq!(home.run(&["image", &missing]).status, 1);
    assert_eq!(home.run(&["image", "--refresh", &missing]).status, 0);
}

#[test]
fn offline_nothing_is_requested() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    let app = registry.reference("app:1");
    let home = Home::new();
    let run = home.run(&["image", "--offline", &app]);
    assert_eq!(run.status, 2);
    assert!(
        run.out.contains("not known: it is not in the cache"),
        "{}",
        run.out
    );
    assert_eq!(registry.requests(), Vec::<String>::new());
    assert!(home.cached().is_empty());
    let run = home.run(&["image", "--offline", "--refresh", &app]);
    assert!(run.err.contains("cannot be used with"), "{}", run.err);
}

#[test]
fn a_damaged_or_foreign_cache_is_not_believed() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    registry.push_image(Media::Oci, "app:2", &windows(LTSC2019));
    let (app, other) = (registry.reference("app:1"), registry.reference("app:2"));
    let home = Home::new();
    let version = |home: &Home| {
        let run = home.run(&["image", "-o", "json", &app]);
        assert_eq!(run.status, 0, "{}{}", run.out, run.err);
        run.json()["images"][0]["variants"][0]["osVersion"].clone()
    };
    assert_eq!(version(&home), LTSC2022);
    let good: Vec<_> = home
        .cached()
        .into_iter()
        .map(|file| (fs::read(&file).unwrap(), file))
        .collect();
    assert_eq!(good.len(), 2);
    assert_eq!(home.run(&["image", &other]).status, 0);
    // The entries of the other image in these places: an attacker who may write files still cannot swap images.
    let others: Vec<_> = home
        .cached()
        .into_iter()
        .filter(|file| good.iter().all(|(_, known)| known != file))
        .collect();
    for (_, file) in &good {
        let kind = file.parent().unwrap();
        let of_other = others.iter().find(|other| other.parent() == Some(kind)).unwrap();
        fs::copy(of_other, file).unwrap();
    }
    assert_eq!(version(&home), LTSC2022);
    for damage in ["", "{", "{\"key\": 1}", "\u{0}\u{1}"] {
        for file in home.cached() {
            fs::write(file, damage).unwrap();
        }
        assert_eq!(version(&home), LTSC2022);
    }
    // A cache that others may write to.
    let folder = home.path("cache/transom/images-v2");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let run = home.run(&["image", &app]);
    assert_eq!(run.status, 0);
    assert!(run.err.contains("others may write to it"), "{}", run.err);
    let run = home.run(&["image", "--offline", &app]);
    assert_eq!(run.status, 2);
    assert!(
        run.err.contains("there is no cache that --offline could use"),
        "{}",
        run.err
    );
}
