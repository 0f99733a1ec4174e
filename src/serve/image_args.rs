//! The flags for looking up images in registries.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::model::syntax::dns::{is_label, is_subdomain};
use crate::model::windows::registry_patterns::{RegistryPattern, RegistryPatterns};
use crate::registration::NEVER;
use crate::registration::names::non_empty_items;

/// Which registries are asked about images, and with which credentials. An empty value is the same as none.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Images")]
#[allow(clippy::struct_field_names, reason = "they are the names of the flags")]
pub struct ImageArgs {
    /// A registry that Transom may ask about the images of pods, for policies with `evidence.imageEvidence: Registry`; a * is
    /// one label, as in *.azurecr.io. Register the same with `transom generate webhooks --image-registry`. May be
    /// repeated. Without it, no registry is asked
    #[arg(
        long,
        env = "TRANSOM_IMAGE_REGISTRY",
        value_name = "PATTERN",
        value_delimiter = ','
    )]
    image_registry: Vec<String>,
    /// A Secret of type kubernetes.io/dockerconfigjson in Transom's namespace, with credentials for these registries.
    /// Without it, and without Secrets of --image-pull-secret-namespace, they are asked anonymously
    #[arg(
        long,
        env = "TRANSOM_IMAGE_PULL_SECRET",
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    image_pull_secret: String,
    /// A namespace for whose images Transom may use the imagePullSecrets of the pods there, which needs permission to get
    /// Secrets in it. May be repeated
    #[arg(
        long,
        env = "TRANSOM_IMAGE_PULL_SECRET_NAMESPACE",
        value_name = "NAMESPACE",
        value_delimiter = ','
    )]
    image_pull_secret_namespace: Vec<String>,
    /// CA certificates in PEM that the certificates of registries may chain to, in addition to those of the machine, or
    /// Mozilla's where the machine has none. May be repeated
    #[arg(long, env = "TRANSOM_REGISTRY_CA", value_name = "FILE", value_delimiter = ',')]
    registry_ca: Vec<String>,
    /// A registry, with its port, that is asked by plain HTTP: others on the network can then read credentials and change
    /// answers. May be repeated
    #[arg(
        long,
        env = "TRANSOM_REGISTRY_PLAIN_HTTP",
        value_name = "HOST",
        value_delimiter = ','
    )]
    registry_plain_http: Vec<String>,
}

/// Which registries are asked about images, and with which credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageSettings {
    /// The registries that may be asked; never empty.
    pub registries: RegistryPatterns,
    /// The Secret in Transom's namespace with credentials for them.
    pub pull_secret: Option<String>,
    /// The namespaces whose pods' own imagePullSecrets may be used.
    pub pull_secret_namespaces: Vec<String>,
    /// Files of CA certificates in addition to those of the machine.
    pub ca_files: Vec<PathBuf>,
    /// The registries, with their ports, that are asked by plain HTTP.
    pub plain_http: Vec<String>,
}

impl ImageArgs {
    /// Checks the arguments. `None` if no registry may be asked.
    ///
    /// # Errors
    /// The flag and the item that is wrong, and what to write.
    pub fn settings(self) -> anyhow::Result<Option<ImageSettings>> {
        let ImageArgs {
            image_registry,
            image_pull_secret,
            image_pull_secret_namespace,
            registry_ca,
            registry_plain_http,
        } = self;
        let registries: Vec<String> = non_empty_items(image_registry).collect();
        let registries = RegistryPatterns::parse(registries.iter().map(String::as_str))
            .map_err(|error| anyhow::anyhow!("--image-registry: {error}"))?;
        let settings = ImageSettings {
            pull_secret: Some(image_pull_secret.trim().to_owned()).filter(|name| !name.is_empty()),
            pull_secret_namespaces: non_empty_items(image_pull_secret_namespace).collect(),
            ca_files: non_empty_items(registry_ca).map(PathBuf::from).collect(),
            plain_http: non_empty_items(registry_plain_http)
                .map(|host| host.to_ascii_lowercase())
                .collect(),
            registries,
        };
        settings.check()?;
        Ok((!settings.registries.is_empty()).then_some(settings))
    }
}

impl ImageSettings {
    fn check(&self) -> anyhow::Result<()> {
        let ImageSettings {
            registries,
            pull_secret,
            pull_secret_namespaces,
            ca_files,
            plain_http,
        } = self;
        if registries.is_empty() {
            for (flag, is_set) in [
                ("--image-pull-secret", pull_secret.is_some()),
                (
                    "--image-pull-secret-namespace",
                    !pull_secret_namespaces.is_empty(),
                ),
                ("--registry-ca", !ca_files.is_empty()),
                ("--registry-plain-http", !plain_http.is_empty()),
            ] {
                if is_set {
                    bail!(
                        "{flag} has no effect without --image-registry; name the registries that Transom may ask"
                    );
                }
            }
        }
        if let Some(name) = pull_secret.as_ref().filter(|name| !is_subdomain(name)) {
            bail!(
                "--image-pull-secret: \"{name}\" is not the name of a Secret; write it without its namespace"
            );
        }
        for namespace in pull_secret_namespaces {
            if !is_label(namespace) || namespace.len() > 63 {
                bail!(
                    "--image-pull-secret-namespace: \"{namespace}\" is not a namespace; write the name of one namespace, without a *"
                );
            }
            if NEVER.contains(&namespace.as_str()) {
                bail!("--image-pull-secret-namespace: the webhooks always exclude {namespace}; remove it");
            }
        }
        for host in plain_http {
            let pattern: RegistryPattern = host
                .parse()
                .map_err(|error| anyhow::anyhow!("--registry-plain-http: {error}"))?;
            if pattern.host().contains('*') {
                bail!("--registry-plain-http: \"{host}\" has a *; name each registry with its port");
            }
            if !registries.matches(host) {
                bail!("--registry-plain-http: \"{host}\" is not in --image-registry; add it there too");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser, Debug)]
    struct Command {
        #[command(flatten)]
        args: ImageArgs,
    }

    fn settings(args: &[&str]) -> Result<Option<ImageSettings>, String> {
        let command: Command =
            clap::Parser::try_parse_from(["serve"].iter().chain(args)).map_err(|error| error.to_string())?;
        command.args.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn registries_are_listed_by_commas_or_by_repeating_the_flag() {
        assert_eq!(settings(&[]), Ok(None));
        let all = settings(&[
            "--image-registry",
            "mcr.microsoft.com,*.azurecr.io",
            "--image-registry",
            "registry.corp:5000",
            "--image-pull-secret",
            "pull",
            "--image-pull-secret-namespace",
            "shop,billing",
            "--registry-ca",
            "/ca.crt",
            "--registry-plain-http",
            "Registry.corp:5000",
        ]);
        let expected = ImageSettings {
            registries: RegistryPatterns::parse(["mcr.microsoft.com", "*.azurecr.io", "registry.corp:5000"])
                .unwrap(),
            pull_secret: Some("pull".to_owned()),
            pull_secret_namespaces: vec!["shop".to_owned(), "billing".to_owned()],
            ca_files: vec!["/ca.crt".into()],
            plain_http: vec!["registry.corp:5000".to_owned()],
        };
        assert_eq!(all, Ok(Some(expected)));
    }

    /// The variables of a chart may be empty.
    #[test]
    fn an_empty_value_is_none() {
        let empty = [
            "--image-registry",
            ",",
            "--image-pull-secret",
            "",
            "--registry-ca",
            "",
        ];
        assert_eq!(settings(&empty), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_flag_and_the_cure() {
        const HUB: [&str; 2] = ["--image-registry", "docker.io"];
        for (args, part) in [
            (
                &["--image-registry", "mcr.*"][..],
                "--image-registry: \"mcr.*\" ends with a *",
            ),
            (
                &["--image-pull-secret", "a"],
                "--image-pull-secret has no effect without --image-registry",
            ),
            (
                &["--image-pull-secret-namespace", "a"],
                "--image-pull-secret-namespace has no effect",
            ),
            (&["--registry-ca", "a"], "--registry-ca has no effect"),
            (
                &["--registry-plain-http", "a:1"],
                "--registry-plain-http has no effect",
            ),
            (
                &[HUB[0], HUB[1], "--image-pull-secret", "shop/pull"],
                "without its namespace",
            ),
            (
                &[HUB[0], HUB[1], "--image-pull-secret-namespace", "*"],
                "is not a namespace",
            ),
            (
                &[HUB[0], HUB[1], "--image-pull-secret-namespace", "kube-system"],
                "remove it",
            ),
            (
                &[HUB[0], HUB[1], "--registry-plain-http", "*.corp:80"],
                "name each registry",
            ),
            (
                &[HUB[0], HUB[1], "--registry-plain-http", "a:1"],
                "add it there too",
            ),
        ] {
            let refused = settings(args).unwrap_err();
            assert!(refused.contains(part), "{args:?}: {refused}");
        }
    }
}
