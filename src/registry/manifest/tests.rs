use super::*;
use crate::model::windows::build::Build;
use crate::model::windows::image_facts::ImageContents;
use crate::model::windows::windows_updates::ImageVersions;
use crate::registry::LookupScope;

/// Shortened from `mcr.microsoft.com/dotnet/runtime:6.0`, with a BuildKit attestation.
const ENTRIES_OF_INDEX: &str = r#"
    {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "@1", "platform": {"architecture": "amd64", "os": "linux"}},
    {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "@2", "platform": {"architecture": "arm", "os": "linux", "variant": "v7"}},
    {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "@3", "platform": {"architecture": "amd64", "os": "windows", "os.version": "10.0.20348.2700"}},
    {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "@4", "platform": {"architecture": "amd64", "os": "windows", "os.version": "10.0.17763.6293"}},
    {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "@5", "platform": {"architecture": "unknown", "os": "unknown"}},
    {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1580, "digest": "@6"}"#;

/// Replaces `@1` with a digest of ones.
fn with_digests(text: &str) -> String {
    (0..10).fold(text.to_owned(), |text, digit| {
        text.replace(
            &format!("\"@{digit}\""),
            &format!("\"sha256:{}\"", digit.to_string().repeat(64)),
        )
    })
}

fn read_index(entries: &str) -> Result<Vec<ImageVariant>, LookupError> {
    let json = format!(r#"{{"schemaVersion": 2, "mediaType": "{DOCKER_INDEX}", "manifests": [{entries}]}}"#);
    match read(DOCKER_INDEX, with_digests(&json).as_bytes())? {
        ManifestContent::Index(variants) => Ok(variants),
        ManifestContent::Image(image) => panic!("{image:?}"),
    }
}

fn versions(variants: Vec<ImageVariant>) -> ImageVersions {
    ImageContents {
        variants,
        ..ImageContents::default()
    }
    .windows_versions()
}

#[test]
fn an_index_lists_its_variants() {
    let variants = read_index(ENTRIES_OF_INDEX).unwrap();
    assert_eq!(variants.len(), 4);
    assert_eq!(variants[1].variant.as_deref(), Some("v7"));
    assert_eq!(variants[2].digest, format!("sha256:{}", "3".repeat(64)));
    let image = versions(variants);
    assert_eq!(
        image.builds().map(Build::number).collect::<Vec<_>>(),
        [17763, 20348]
    );
    assert_eq!(image.revision_of(Build::new(20348)), Some(2700));
    assert!(!image.has_unversioned);
    assert_eq!(read_index(""), Ok(Vec::new()));
}

#[test]
fn an_entry_without_a_version_matches_any_host_and_the_others_keep_their_builds() {
    for version in [r#", "os.version": "10.0.17763.6293""#, "10.0.17763.6293"] {
        let image = versions(read_index(&ENTRIES_OF_INDEX.replace(version, "")).unwrap());
        assert_eq!(image.builds().map(Build::number).collect::<Vec<_>>(), [20348]);
        assert!(image.has_unversioned);
    }
}

#[test]
fn an_attestation_is_no_image_whatever_its_platform() {
    let entries = r#"
        {"digest": "@1", "platform": {"os": "windows", "os.version": "10.0.20348.2700"}},
        {"digest": "@2", "platform": {"os": "windows"}, "annotations": {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": "sha256:1"}},
        {"digest": "@3", "platform": {"os": "unknown", "architecture": "unknown"}, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}},
        {"digest": "@4", "mediaType": "application/vnd.example.sbom+json", "platform": {"os": "windows"}},
        {"digest": "@5", "platform": {"os": ""}}"#;
    let variants = read_index(entries).unwrap();
    assert_eq!(variants.len(), 1);
    assert!(!versions(variants).has_unversioned);
}

#[test]
fn an_index_in_an_index_is_refused() {
    for kind in [OCI_INDEX, DOCKER_INDEX] {
        let entry = format!(r#"{{"mediaType": "{kind}", "digest": "@1", "size": 2}}"#);
        let refused = read_index(&format!("{ENTRIES_OF_INDEX}, {entry}")).unwrap_err();
        assert!(refused.message.contains("contains another index"), "{refused}");
    }
}

#[test]
fn an_index_has_at_most_1000_entries() {
    let entry = r#"{"digest": "@1", "platform": {"os": "windows"}}"#;
    assert_eq!(read_index(&vec![entry; 1000].join(",")).unwrap().len(), 1000);
    // Of more than a list can have, none is kept: four megabytes of `{}` would be hundreds in memory.
    for (number, why) in [
        (1001, "an index of more than 1000 entries"),
        (50_000, "the answer is not a manifest"),
    ] {
        let refused = read_index(&vec!["{}"; number].join(",")).unwrap_err();
        assert_eq!(refused.message, why);
    }
}

#[test]
fn names_of_platforms_and_digests_are_checked() {
    let long = "a".repeat(NAME + 1);
    for entry in [
        format!(r#"{{"digest": "@1", "platform": {{"os": "{long}"}}}}"#),
        r#"{"digest": "@1", "platform": {"os": "win dows"}}"#.to_owned(),
        r#"{"digest": "@1", "platform": {"os": "windows", "architecture": "a\u001b[31m"}}"#.to_owned(),
        r#"{"digest": "sha256:../../x", "platform": {"os": "windows"}}"#.to_owned(),
        r#"{"platform": {"os": "windows"}}"#.to_owned(),
    ] {
        assert!(read_index(&entry).is_err(), "{entry}");
    }
}

#[test]
fn a_manifest_states_its_configuration_and_the_size_of_its_layers() {
    let manifest = |kind: &str, config: &str| {
        let text = format!(
            r#"{{"schemaVersion": 2, "mediaType": "{kind}", "config": {{"mediaType": "{config}", "digest": "@1", "size": 2}},
                "layers": [{{"digest": "@2", "size": 100}}, {{"digest": "@3", "size": 11}}]}}"#
        );
        with_digests(&text)
    };
    for (kind, config) in [(OCI_MANIFEST, OCI_CONFIG), (DOCKER_MANIFEST, DOCKER_CONFIG)] {
        let image = read(kind, manifest(kind, config).as_bytes());
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let config = Digest::parse(&digest("1")).unwrap();
        let layer = |digit: &str, size: u64| ImageLayer {
            digest: digest(digit),
            size,
        };
        let layers = vec![layer("2", 100), layer("3", 11)];
        let single = |layers: Vec<ImageLayer>| {
            let config = config.clone();
            Ok(ManifestContent::Image(SingleImage {
                config,
                size: 111,
                layers,
            }))
        };
        assert_eq!(image, single(layers));
        // Of layers that are not all known, none is: a part would count as all.
        let broken = manifest(kind, DOCKER_CONFIG).replace(&digest("3"), "sha256:../x");
        assert_eq!(read(kind, broken.as_bytes()), single(Vec::new()));
        // A server of plain files sends a general type.
        assert!(
            read(
                "application/json; charset=utf-8",
                manifest(kind, DOCKER_CONFIG).as_bytes()
            )
            .is_ok()
        );
    }
    let chart = manifest(OCI_MANIFEST, "application/vnd.cncf.helm.config.v1+json");
    let refused = read(OCI_MANIFEST, chart.as_bytes()).unwrap_err();
    assert!(
        refused.message.starts_with("it is not a container image"),
        "{refused}"
    );
}

#[test]
fn content_of_another_type_than_announced_is_refused() {
    let config = format!(
        r#""config": {{"digest": "sha256:{}"}}, "layers": []"#,
        "0".repeat(64)
    );
    let both = format!(r#"{{"mediaType": "{OCI_INDEX}", "manifests": [], {config}}}"#);
    let index = format!(r#"{{"mediaType": "{OCI_INDEX}", "manifests": []}}"#);
    let image = format!("{{{config}}}");
    let cases = [
        (OCI_INDEX, &*both, "is not what its media type"),
        (
            OCI_MANIFEST,
            &index,
            "of the media type application/vnd.oci.image.manifest.v1+json, and states",
        ),
        (OCI_INDEX, &image, "is not what its media type"),
        ("text/html", &image, "text/html is not one of container images"),
        ("", &image, "has no media type"),
        (OCI_MANIFEST, "[]", "not a manifest"),
        ("text/html", "<html>", "not a manifest"),
        (
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            "{}",
            "schema 1",
        ),
        (
            "application/json",
            r#"{"schemaVersion": 1, "fsLayers": []}"#,
            "schema 1",
        ),
        (
            OCI_MANIFEST,
            r#"{"config": {"digest": "sha256:../../x"}}"#,
            "an invalid digest",
        ),
    ];
    for (kind, body, why) in cases {
        let refused = read(kind, body.as_bytes()).unwrap_err();
        assert!(refused.message.contains(why), "{kind} {body}: {refused}");
        assert_eq!(refused.scope, LookupScope::Image);
    }
}

#[test]
fn a_configuration_states_platform_user_volumes_and_command() {
    let windows = br#"{"architecture": "amd64", "os": "windows", "os.version": "10.0.26100.1742", "rootfs": {}, "config":
        {"User": "ContainerUser", "Volumes": {"d:": {}, "c:\\data": {}}, "Entrypoint": ["app.exe"], "Cmd": ["/serve"], "Env": ["A=b"]}}"#;
    let image = of_config(windows).unwrap();
    assert_eq!(image.os_version.unwrap().revision, Some(1742));
    let config = image.config.unwrap();
    assert_eq!(config.user, "ContainerUser");
    assert_eq!(config.volumes, ["c:\\data", "d:"]);
    assert_eq!(config.command, ["app.exe", "/serve"]);
    let empty = br#"{"os": "linux", "config": {"Volumes": null, "Entrypoint": null, "Cmd": null}}"#;
    assert_eq!(of_config(empty).unwrap().config, Some(ImageConfig::default()));
    assert_eq!(of_config(br#"{"os": "windows"}"#).unwrap().os_version, None);
    assert!(of_config(b"{}").is_err() && of_config(b"").is_err());
}

#[test]
fn the_last_windows_layer_of_the_history_is_the_base() {
    let base = |history: &str| {
        let config = format!(r#"{{"os": "windows", "architecture": "amd64", "history": {history}}}"#);
        let base = of_config(config.as_bytes()).unwrap().config.unwrap().base;
        base.map(|base| {
            format!(
                "{}.{} {}",
                base.version.build,
                base.version.revision.unwrap(),
                base.date
            )
        })
    };
    let apply = r#"{"created": "2021-05-08T02:40:24-07:00", "created_by": "Apply image 10.0.20348.169"}"#;
    let update = r#"{"created": "2026-03-07T20:11:41Z", "created_by": "Install update 10.0.20348.5622"}"#;
    let own = r#"{"created": "2026-04-01T00:00:00Z", "created_by": "cmd /S /C install update 10.0.1", "empty_layer": true}"#;
    let found = |base: &str| Some(base.to_owned());
    assert_eq!(
        base(&format!("[{apply}, {update}, {own}]")),
        found("10.0.20348.5622 2026-03-07")
    );
    // The day is that of UTC.
    assert_eq!(
        base(&format!("[{apply}, {own}]")),
        found("10.0.20348.169 2021-05-08")
    );
    for none in [
        "null",
        "[]",
        &format!("[{own}]"),
        r#"[{"created_by": "Install update 10.0.20348.1"}]"#,
        r#"[{"created": "yesterday", "created_by": "Install update 10.0.20348.1"}]"#,
        r#"[{"created": "2026-03-07T20:11:41Z", "created_by": "Install update everything"}]"#,
    ] {
        assert_eq!(base(none), None, "{none}");
    }
}

#[test]
fn of_a_configuration_a_bounded_part_is_kept() {
    let words = vec![format!("\"{}\"", "ä".repeat(TEXT)); 2 * LIST].join(",");
    let config = format!(
        r#"{{"os": "windows", "config": {{"Entrypoint": [{words}], "User": {}}}}}"#,
        &words[..2 * TEXT + 2]
    );
    let config = of_config(config.as_bytes()).unwrap().config.unwrap();
    assert_eq!(config.command.len(), LIST);
    assert_eq!((config.command[0].len(), config.user.len()), (TEXT, TEXT));
}

#[test]
fn an_error_of_a_registry_is_known() {
    assert!(is_error(
        br#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}"#
    ));
    assert!(!is_error(b"<html>404</html>") && !is_error(b"{}") && !is_error(br#"{"errors": []}"#));
}
