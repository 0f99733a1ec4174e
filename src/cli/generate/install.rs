//! `transom generate install`: the manifests of an installation without Helm, with an image that can be pulled.

use anyhow::{Context as _, bail};
use clap::Args;

use crate::model::image::ImageRef;

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
  transom generate install --image ghcr.io/example/transom:0.1.0 | kubectl apply --server-side -f -")]
pub struct InstallArgs {
    /// The image of Transom, with its registry and a tag or digest
    #[arg(long, value_name = "IMAGE")]
    image: String,
}

/// The manifests, with the chart's image replaced.
///
/// # Errors
/// If a node could not pull the image.
pub fn manifest(args: &InstallArgs) -> anyhow::Result<String> {
    let image = args.image.as_str();
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
