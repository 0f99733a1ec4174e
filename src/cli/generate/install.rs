//! `transom generate install`: the manifests of an installation without Helm, with an image that can be pulled.

mod registries;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;

use crate::manifest;
use crate::model::syntax::dns::is_subdomain;
use crate::model::windows::image::ImageRef;
use crate::model::windows::registry_patterns::{RegistryPattern, RegistryPatterns};
use crate::render::yaml_documents;

/// The chart rendered with its default values.
const MANIFEST: &str = include_str!("../../../manifests/install.yaml");

/// The registry of the chart's default image, which does not exist.
const PLACEHOLDER: &str = "registry.example.com/";

/// Generate the manifests of an installation without Helm
///
/// What the chart renders with its defaults, for the namespace transom-system. Apply the CustomResourceDefinitions first:
/// transom generate crds | kubectl apply --server-side --field-manager=helm -f -
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate install --image ghcr.io/example/transom:0.1.0 | kubectl apply --server-side -f -
  transom generate install --image ghcr.io/example/transom:0.1.0 --image-registry 'mcr.microsoft.com,*.azurecr.io'")]
pub struct InstallArgs {
    /// The image of Transom, with its registry and a tag or digest
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// A registry that Transom may ask about the images of pods, as imageLookups.registries of the chart; a * is one label. Adds
    /// webhook entries and rights. Repeatable
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    image_registry: Vec<RegistryPattern>,
    /// A Secret of type kubernetes.io/dockerconfigjson in the namespace transom-system, with credentials for these
    /// registries. Without it, Transom asks them anonymously
    #[arg(long, value_name = "NAME", requires = "image_registry", value_parser = secret)]
    image_pull_secret: Option<String>,
}

fn secret(name: &str) -> Result<String, String> {
    if is_subdomain(name) {
        return Ok(name.to_owned());
    }
    Err("write the name of a Secret, without its namespace".to_owned())
}

/// The manifests, with the chart's image replaced, and with what registries need.
///
/// # Errors
/// If a node could not pull the image, or the list of registries is too long.
pub fn manifest(args: &InstallArgs) -> anyhow::Result<String> {
    let InstallArgs {
        image,
        image_registry,
        image_pull_secret,
    } = args;
    let registries = RegistryPatterns::new(image_registry.iter().cloned()).context("--image-registry")?;
    let text = with_image(image)?;
    if registries.is_empty() {
        return Ok(text);
    }
    let comments: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
    let objects: Result<Vec<Value>, _> = manifest::parse(text.clone().into_bytes())
        .documents
        .iter()
        .map(|document| serde_json::from_str(document.json()))
        .collect();
    let mut objects = objects.context("the manifests of this build cannot be parsed")?;
    registries::add(&mut objects, &registries, image_pull_secret.as_deref())?;
    Ok(format!("{}\n{}", comments.join("\n"), yaml_documents(&objects)))
}

/// The manifests with this image.
fn with_image(image: &str) -> anyhow::Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "./:@_-".contains(c);
    let after_path = image.rsplit('/').next().unwrap_or_default();
    if !image.chars().all(is_plain) || ImageRef::parse(image).is_err() {
        bail!("\"{image}\" is not an image (--image): write it as in ghcr.io/example/transom:0.1.0");
    }
    if !after_path.contains([':', '@']) {
        bail!(
            "the image {image} has no tag or digest (--image): write it as in {image}:{}",
            env!("CARGO_PKG_VERSION")
        );
    }
    if image.starts_with(PLACEHOLDER) {
        bail!(
            "registry.example.com is a placeholder (--image): name the registry that holds the image of Transom"
        );
    }
    let placeholder = MANIFEST
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: "))
        .map(|value| value.trim_matches('"'))
        .find(|value| value.starts_with(PLACEHOLDER));
    let placeholder = placeholder.context("the manifests of this build name no image")?;
    Ok(MANIFEST.replace(placeholder, image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_replaces_the_placeholder_and_must_be_one_that_can_be_pulled() {
        let generate = |image: &str| {
            manifest(&InstallArgs {
                image: image.to_owned(),
                image_registry: Vec::new(),
                image_pull_secret: None,
            })
        };
        let text = generate("ghcr.io/example/transom:0.1.0").unwrap();
        assert!(text.contains("image: \"ghcr.io/example/transom:0.1.0\""));
        assert!(!text.contains("registry.example.com"));
        for (image, message) in [
            ("registry.example.com/transom/transom:0.1.0", "placeholder"),
            ("ghcr.io/example/transom", "no tag"),
            ("ghcr.io:5000/transom", "no tag"),
            ("a b", "not an image"),
            ("\"\\nkind: Evil", "not an image"),
            ("", "not an image"),
        ] {
            let error = generate(image).unwrap_err().to_string();
            assert!(error.contains(message), "{image}: {error}");
        }
    }
}
