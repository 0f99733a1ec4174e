//! `transom generate webhooks`: converts arguments to registration options, and prints the two
//! configurations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Value, json};

use crate::cli::cluster::ClusterConfigArgs;
use crate::cli::options::{self, ExcludedNamespacesArgs, OutputArgs, one_of};
use crate::cluster::client::InstallationArgs;
use crate::model::nodes::node::NodeLabel;
use crate::model::windows::registry_patterns::{RegistryPattern, RegistryPatterns};
use crate::process::files::{self, Accept};
use crate::registration::names::non_empty_items;
use crate::registration::{
    FailurePolicy, LONGEST_TIMEOUT, RegistrationOptions, ServiceName, WebhookEndpoint, mutating, validating,
};
use crate::render;

/// Generate the webhook configurations by which an API server calls Transom
///
/// One MutatingWebhookConfiguration and one ValidatingWebhookConfiguration, for kubectl apply -f -. Start the server
/// first.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate webhooks --service transom.transom-system --ca-bundle ca.pem | kubectl apply -f -
  transom generate webhooks --url https://192.0.2.7:8443 -o json=webhooks.json")]
#[command(group = ArgGroup::new("endpoint").required(true).args(["service", "url"]))]
pub struct WebhooksArgs {
    /// The Service of the webhook; it is called at port 443, and its namespace is excluded
    #[arg(long, value_name = "NAME.NAMESPACE")]
    service: Option<ServiceName>,
    /// The address of a webhook outside the cluster, without a path
    #[arg(long, value_name = "https://HOST:PORT", value_parser = url)]
    url: Option<WebhookEndpoint>,
    /// The CA of the webhook's certificate in PEM, as `transom serve --write-ca` writes it
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// What /validate does with pods that are certainly for Windows if Transom does not answer. Everything else passes
    /// in that case
    #[arg(long, value_name = "POLICY", default_value = "Ignore",
          value_parser = one_of(FailurePolicy::ALL, FailurePolicy::as_str))]
    failure_policy: FailurePolicy,
    /// How long the API server waits for an answer: 1 or 2
    #[arg(long, value_name = "SECONDS", default_value_t = LONGEST_TIMEOUT.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=LONGEST_TIMEOUT.as_secs()))]
    timeout_seconds: u64,
    #[command(flatten)]
    excluded: ExcludedNamespacesArgs,
    /// Registers linux-pods for namespaces with these labels: the webhooks are called there for Linux pods that
    /// nothing keeps off Windows nodes
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    linux_pods_selector: Option<LabelSelector>,
    /// Registers the default operating system for namespaces with these labels: the webhooks are called there for
    /// pods without an operating system
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    default_os_selector: Option<LabelSelector>,
    /// A registry that Transom may ask about images, as in `transom serve --image-registry`; a * is one label. Registers the
    /// entries for pods without an operating system whose images are there. May be repeated
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    image_registry: Vec<RegistryPattern>,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    output: OutputArgs<Output>,
    #[command(flatten)]
    installation: InstallationArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Output {
    Yaml,
    Json,
}

/// Prints the two objects.
pub fn run(args: &WebhooksArgs) -> anyhow::Result<()> {
    let options = options(args)?;
    let mutating = serde_json::to_value(mutating(&options)).context("cannot write the mutating webhooks")?;
    let validating =
        serde_json::to_value(validating(&options)).context("cannot write the validating webhooks")?;
    args.output.write(|format, out| match format {
        Output::Yaml => write!(
            out,
            "{}---\n{}",
            render::yaml(&mutating),
            render::yaml(&validating)
        ),
        Output::Json => {
            let list: Value = json!({"apiVersion": "v1", "kind": "List", "items": [&mutating, &validating]});
            writeln!(out, "{list:#}")
        }
    })
}

fn options(args: &WebhooksArgs) -> anyhow::Result<RegistrationOptions> {
    let WebhooksArgs {
        service,
        url,
        ca_bundle,
        installation,
        failure_policy,
        timeout_seconds,
        excluded,
        linux_pods_selector,
        default_os_selector,
        cluster_config,
        image_registry,
        output: _,
    } = args;
    let service = service.clone().map(WebhookEndpoint::Service);
    let Some(endpoint) = service.or_else(|| url.clone()) else {
        bail!("give the address of the webhook: --service NAME.NAMESPACE or --url https://HOST:PORT");
    };
    let stated = cluster_config.load()?.unwrap_or_default();
    Ok(RegistrationOptions {
        name: installation.name.clone(),
        endpoint,
        ca_bundle: ca_bundle.as_deref().map(read_ca).transpose()?,
        validate_failure_policy: *failure_policy,
        timeout: Duration::from_secs(*timeout_seconds),
        excluded_namespaces: non_empty_items(excluded.exclude_namespace.clone()).collect(),
        node_labels: NodeLabel::well_known()
            .into_iter()
            .chain(stated.config.node_labels.iter().cloned())
            .collect(),
        pod_templates: stated.config.pod_templates.clone(),
        default_node_selector: (stated.config.has_default_node_selectors()).then(LabelSelector::default),
        cluster_config_hash: stated.hash.as_deref().map(str::to_owned),
        linux_pods: linux_pods_selector.clone(),
        default_os: default_os_selector.clone(),
        image_registries: RegistryPatterns::new(image_registry.iter().cloned())
            .context("--image-registry")?,
    })
}

fn read_ca(file: &Path) -> anyhow::Result<Vec<u8>> {
    let pem = files::read(file, Accept::RegularOrPipe, files::CERTIFICATE_BYTES);
    let pem = pem.with_context(|| format!("cannot read the CA from {}", file.display()))?;
    if !pem.windows(11).any(|part| part == b"-----BEGIN ") {
        bail!(
            "{} is not PEM: write certificates that begin with -----BEGIN CERTIFICATE-----",
            file.display()
        );
    }
    Ok(pem)
}

fn url(text: &str) -> Result<WebhookEndpoint, String> {
    let host = text
        .strip_prefix("https://")
        .unwrap_or_default()
        .trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return Err("write the address without a path, as in https://transom.example:8443".to_owned());
    }
    Ok(WebhookEndpoint::Url(format!("https://{host}")))
}

/// Parses a selector in the Kubernetes syntax.
fn selector(text: &str) -> Result<LabelSelector, String> {
    let expressions = options::selector(text)?.match_expressions.into_iter();
    let expressions = expressions.map(|expression| LabelSelectorRequirement {
        key: expression.key,
        operator: expression.operator.as_str().to_owned(),
        values: (!expression.values.is_empty()).then_some(expression.values),
    });
    Ok(LabelSelector {
        match_expressions: Some(expressions.collect()),
        match_labels: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser, Debug)]
    struct Command {
        #[command(flatten)]
        args: WebhooksArgs,
    }

    #[test]
    fn without_a_target_both_ways_to_name_one_are_shown() {
        let refusal = |flags: &[&str]| {
            let words = ["webhooks"].iter().chain(flags);
            <Command as clap::Parser>::try_parse_from(words)
                .unwrap_err()
                .to_string()
        };
        let none = refusal(&[]);
        assert!(
            none.contains("--service <NAME.NAMESPACE>") && none.contains("--url <https://HOST:PORT>"),
            "{none}"
        );
        let both = refusal(&["--service", "a.b", "--url", "https://h"]);
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn services_and_addresses_are_read_as_people_write_them() {
        let service = str::parse::<ServiceName>;
        let transom = ServiceName {
            name: "transom".to_owned(),
            namespace: "transom-system".to_owned(),
        };
        assert_eq!(service("transom.transom-system"), Ok(transom));
        assert_eq!(
            url("https://h:1/"),
            Ok(WebhookEndpoint::Url("https://h:1".to_owned()))
        );
        for bad in ["transom", ".a", "a.", "a.b.c"] {
            assert!(service(bad).is_err(), "{bad}");
        }
        for bad in ["http://h", "https://", "h:1", "https://h/mutate", "https://u@h"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
