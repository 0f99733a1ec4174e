//! Parses registry responses: an index of images for several platforms, the manifest of one image, and its
//! configuration, which alone contains the platform.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::RegistryError;
use crate::model::build::Build;
use crate::model::image::ImageRef;

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
}

/// The platform, in an index and in a configuration.
#[derive(Deserialize)]
struct ImagePlatform {
    os: Option<String>,
    #[serde(rename = "os.version")]
    version: Option<String>,
}

impl ImagePlatform {
    /// The build, if it is for Windows.
    fn build(&self) -> Result<Option<Build>, RegistryError> {
        if self.os.as_deref() != Some("windows") {
            return Ok(None);
        }
        let version = self.version.as_deref().unwrap_or_default();
        Build::parse_kernel_version(version)
            .map(|(build, _)| Some(build))
            .ok_or_else(|| RegistryError::image("an image for Windows without a build"))
    }
}

/// The result of parsing a manifest.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum ManifestContent {
    /// The builds.
    Builds(Vec<Build>),
    /// The configuration with this digest contains the build.
    Config(String),
}

/// Parses an index or a manifest.
pub(super) fn read(json: &[u8]) -> Result<ManifestContent, RegistryError> {
    let manifest: Manifest =
        serde_json::from_slice(json).map_err(|_| RegistryError::image("an answer that is not a manifest"))?;
    if let Some(entries) = manifest.manifests {
        let mut builds = BTreeSet::new();
        for platform in entries.iter().filter_map(|entry| entry.platform.as_ref()) {
            builds.extend(platform.build()?);
        }
        return Ok(ManifestContent::Builds(builds.into_iter().collect()));
    }
    let config = manifest.config.map(|config| config.digest);
    let config =
        config.filter(|digest| ImageRef::parse(&format!("app@{digest}")).is_ok_and(|it| it.tag.is_none()));
    config
        .map(ManifestContent::Config)
        .ok_or_else(|| RegistryError::image("a manifest without a configuration"))
}

/// The builds in the configuration of an image: one, or none.
pub(super) fn of_config(json: &[u8]) -> Result<Vec<Build>, RegistryError> {
    let platform: ImagePlatform = serde_json::from_slice(json)
        .map_err(|_| RegistryError::image("a configuration that is not valid"))?;
    if platform.os.as_deref().unwrap_or_default().is_empty() {
        return Err(RegistryError::image(
            "a configuration without an operating system",
        ));
    }
    Ok(platform.build()?.into_iter().collect())
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
        let builds = vec![Build::new(17763), Build::new(20348)];
        assert_eq!(read(INDEX.as_bytes()), Ok(ManifestContent::Builds(builds)));
        let linux = r#"{"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]}"#;
        assert_eq!(read(linux.as_bytes()), Ok(ManifestContent::Builds(vec![])));
    }

    #[test]
    fn of_an_index_with_a_windows_image_without_a_build_nothing_is_known() {
        let index = INDEX.replace("10.0.17763.6293", "");
        assert!(matches!(read(index.as_bytes()), Err(RegistryError::Image(_))));
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
        assert_eq!(of_config(windows), Ok(vec![Build::new(26100)]));
        assert_eq!(of_config(br#"{"os": "linux"}"#), Ok(vec![]));
        assert!(of_config(br#"{"os": "windows"}"#).is_err());
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
