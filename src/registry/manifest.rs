//! Parses registry responses: an index of images for several platforms, the manifest of one image, and its
//! configuration, which alone contains the platform.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::RegistryError;
use crate::model::build::Build;
use crate::model::image::ImageRef;
use crate::model::revisions::{ImageVersions, OsVersion};

/// The accepted media types: Docker's and OCI's, for indexes and manifests.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

#[derive(Deserialize)]
struct Manifest {
    manifests: Option<Vec<IndexEntry>>,
    config: Option<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize)]
struct IndexEntry {
    platform: Option<ImagePlatform>,
    annotations: Option<BTreeMap<String, String>>,
}

impl IndexEntry {
    /// Whether it is an attestation about another entry, and not an image. BuildKit marks them with an annotation.
    fn is_attestation(&self) -> bool {
        let annotations = self.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key("vnd.docker.reference.type"))
    }
}

/// The platform, in an index and in a configuration.
#[derive(Deserialize)]
struct ImagePlatform {
    os: Option<String>,
    #[serde(rename = "os.version")]
    version: Option<String>,
}

impl ImagePlatform {
    /// Adds it to the versions of an image, if it is for Windows. A version that is missing or not one of Windows matches
    /// any host, as in containerd.
    fn add_to(&self, image: &mut ImageVersions) {
        if self.os.as_deref() == Some("windows") {
            let version = self.version.as_deref().unwrap_or_default();
            let version = Build::parse_kernel_version(version);
            image.add(version.map(|(build, revision)| OsVersion { build, revision }));
        }
    }
}

/// The result of parsing a manifest.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum ManifestContent {
    /// The Windows versions.
    Builds(ImageVersions),
    /// The configuration with this digest contains the build.
    Config(String),
}

/// Parses an index or a manifest.
pub(super) fn read(json: &[u8]) -> Result<ManifestContent, RegistryError> {
    let manifest: Manifest =
        serde_json::from_slice(json).map_err(|_| RegistryError::image("an answer that is not a manifest"))?;
    if let Some(entries) = manifest.manifests {
        let mut image = ImageVersions::default();
        let images = entries.iter().filter(|entry| !entry.is_attestation());
        for platform in images.filter_map(|entry| entry.platform.as_ref()) {
            platform.add_to(&mut image);
        }
        return Ok(ManifestContent::Builds(image));
    }
    let config = manifest.config.map(|config| config.digest);
    let config =
        config.filter(|digest| ImageRef::parse(&format!("app@{digest}")).is_ok_and(|it| it.tag.is_none()));
    config
        .map(ManifestContent::Config)
        .ok_or_else(|| RegistryError::image("a manifest without a configuration"))
}

/// The version in the configuration of an image: one, or none.
pub(super) fn of_config(json: &[u8]) -> Result<ImageVersions, RegistryError> {
    let platform: ImagePlatform = serde_json::from_slice(json)
        .map_err(|_| RegistryError::image("a configuration that is not valid"))?;
    if platform.os.as_deref().unwrap_or_default().is_empty() {
        return Err(RegistryError::image(
            "a configuration without an operating system",
        ));
    }
    let mut image = ImageVersions::default();
    platform.add_to(&mut image);
    Ok(image)
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
mod tests {
    use super::*;

    /// Shortened from `mcr.microsoft.com/dotnet/runtime:6.0`, with a BuildKit attestation.
    const INDEX: &str = r#"{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.list.v2+json", "manifests": [
        {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "sha256:1111", "platform": {"architecture": "amd64", "os": "linux"}},
        {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "sha256:2222", "platform": {"architecture": "arm", "os": "linux", "variant": "v7"}},
        {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "sha256:3333", "platform": {"architecture": "amd64", "os": "windows", "os.version": "10.0.20348.2700"}},
        {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "sha256:4444", "platform": {"architecture": "amd64", "os": "windows", "os.version": "10.0.17763.6293"}},
        {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 1580, "digest": "sha256:5555", "platform": {"architecture": "unknown", "os": "unknown"}},
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1580, "digest": "sha256:6666"}]}"#;

    #[test]
    fn an_index_says_its_windows_builds() {
        let Ok(ManifestContent::Builds(image)) = read(INDEX.as_bytes()) else {
            panic!("an index has builds");
        };
        assert_eq!(
            image.builds().map(Build::number).collect::<Vec<_>>(),
            [17763, 20348]
        );
        assert_eq!(image.revision_of(Build::new(20348)), Some(2700));
        assert!(!image.has_unversioned);
        let linux = r#"{"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]}"#;
        assert_eq!(
            read(linux.as_bytes()),
            Ok(ManifestContent::Builds(ImageVersions::default()))
        );
    }

    #[test]
    fn an_entry_without_a_version_matches_any_host_and_the_others_keep_their_builds() {
        for version in [r#", "os.version": "10.0.17763.6293""#, "10.0.17763.6293"] {
            let Ok(ManifestContent::Builds(image)) = read(INDEX.replace(version, "").as_bytes()) else {
                panic!("an index has builds");
            };
            assert_eq!(image.builds().map(Build::number).collect::<Vec<_>>(), [20348]);
            assert!(image.has_unversioned);
        }
    }

    #[test]
    fn an_attestation_is_no_image_whatever_its_platform() {
        let index = r#"{"manifests": [
            {"platform": {"os": "windows", "os.version": "10.0.20348.2700"}},
            {"platform": {"os": "windows"}, "annotations": {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": "sha256:1"}},
            {"platform": {"os": "unknown", "architecture": "unknown"}, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}]}"#;
        let Ok(ManifestContent::Builds(image)) = read(index.as_bytes()) else {
            panic!("an index has builds");
        };
        assert_eq!(image.builds().map(Build::number).collect::<Vec<_>>(), [20348]);
        assert!(!image.has_unversioned);
    }

    #[test]
    fn a_manifest_says_where_its_configuration_is() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let manifest = |digest: &str| {
            format!(r#"{{"schemaVersion": 2, "config": {{"digest": "{digest}", "size": 2}}, "layers": []}}"#)
        };
        assert_eq!(
            read(manifest(&digest).as_bytes()),
            Ok(ManifestContent::Config(digest))
        );
        for other in [
            &*manifest("sha256:../../x"),
            r#"{"schemaVersion": 1, "fsLayers": []}"#,
            "[]",
            "<html>",
            "",
        ] {
            assert!(
                matches!(read(other.as_bytes()), Err(RegistryError::Image(_))),
                "{other}"
            );
        }
    }

    #[test]
    fn a_configuration_says_the_build() {
        let windows =
            br#"{"architecture": "amd64", "os": "windows", "os.version": "10.0.26100.1742", "rootfs": {}}"#;
        let image = of_config(windows).unwrap();
        assert_eq!(image.revision_of(Build::new(26100)), Some(1742));
        assert_eq!(of_config(br#"{"os": "linux"}"#), Ok(ImageVersions::default()));
        assert!(of_config(br#"{"os": "windows"}"#).unwrap().has_unversioned);
        assert!(of_config(b"{}").is_err());
    }

    #[test]
    fn an_error_of_a_registry_is_known() {
        assert!(is_error(
            br#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}"#
        ));
        assert!(!is_error(b"<html>404</html>") && !is_error(b"{}") && !is_error(br#"{"errors": []}"#));
    }
}
