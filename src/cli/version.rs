//! `transom version`: the version of this program, and of the servers in a cluster.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::block_on;
use super::knowledge::KnowledgeArgs;
use super::options::{OutputArgs, ReportFormat};
use crate::api::API_VERSION;
use crate::cluster::client::ConnectArgs;
use crate::cluster::list::{Listing, for_each_as};
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::KnowledgeReport;
use crate::model::syntax::report_schema::of_report;
use crate::process::today;
use crate::rules::catalogue;

/// The labels of the Deployment of the webhook. The chart and `transom generate install` set them.
const SERVER: &str = "app.kubernetes.io/name=transom,app.kubernetes.io/component=webhook";

/// The label with the version of an application.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// Print the version, the revision and what this program knows; with --kubeconfig or --context the version of the server too
///
/// The version of the server is that of its Deployment: the label app.kubernetes.io/version, and the image.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom version
  transom version --context production
  transom version -o json")]
pub struct VersionArgs {
    #[command(flatten)]
    output: OutputArgs<ReportFormat>,
    #[command(flatten)]
    knowledge: KnowledgeArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The version of this program, and of the servers in a cluster.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom version -o json")]
struct About {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The version of this program.
    version: &'static str,
    /// The commit; null if the build does not set it.
    revision: Option<&'static str>,
    /// The newest Kubernetes version that this program supports.
    kubernetes: String,
    /// The version of the custom resources.
    api_version: &'static str,
    /// The number of rules.
    rules: usize,
    /// The known faults and dates of support.
    knowledge: KnowledgeReport,
    /// The operating system and the architecture, as in `linux/x86_64`.
    platform: String,
    /// The servers in Transom's namespace; absent if no cluster is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Servers>,
}

/// Where servers were searched, and what was found.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Servers {
    /// The name of the cluster.
    cluster: String,
    /// Transom's namespace.
    namespace: String,
    /// The installations.
    installations: Vec<ServerVersion>,
}

/// One installation.
#[derive(Serialize, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    /// The name of the Deployment.
    deployment: String,
    /// The version in a label of the Deployment; null if another writer has removed it.
    version: Option<String>,
    /// The image of its first container; null if it has none.
    image: Option<String>,
}

/// The schema of the report.
const SCHEMA: &str = "transom.dev/version/v1";

/// The JSON schema of the report.
pub fn schema() -> Value {
    of_report::<About>()
}

impl From<Deployment> for ServerVersion {
    fn from(found: Deployment) -> Self {
        let pod = found.spec.template.spec;
        let container = pod.and_then(|pod| pod.containers.into_iter().next());
        ServerVersion {
            deployment: found.metadata.name.unwrap_or_default(),
            version: found
                .metadata
                .labels
                .and_then(|mut labels| labels.remove(VERSION_LABEL)),
            image: container.and_then(|container| container.image),
        }
    }
}

impl Servers {
    async fn read(connect: &ConnectArgs) -> anyhow::Result<Self> {
        let (connected, namespace) = connect.connect().await?;
        let installations = servers(&connected.client, &namespace)
            .await
            .with_context(|| format!("cannot read the version of the server in {}", connected.name))?;
        Ok(Servers {
            cluster: connected.name,
            namespace,
            installations,
        })
    }

    fn lines(&self) -> Vec<String> {
        let Servers {
            cluster,
            namespace,
            installations,
        } = self;
        if installations.is_empty() {
            return vec![format!(
                "server: {cluster} has no Deployment of Transom in the namespace {namespace}; name another one with \
                 --transom-namespace"
            )];
        }
        let mut lines = Vec::new();
        for ServerVersion {
            deployment,
            version,
            image,
        } in installations
        {
            let version = version.as_deref().unwrap_or("of an unknown version");
            let image = image.as_deref().unwrap_or("no image");
            lines.push(format!(
                "server {version}: Deployment {namespace}/{deployment} in {cluster}, {image}"
            ));
        }
        lines
    }
}

async fn servers(client: &Client, namespace: &str) -> anyhow::Result<Vec<ServerVersion>> {
    let listing = Listing::new("/apis/apps/v1/deployments")
        .in_namespace(namespace)
        .with_labels(SERVER);
    let (mut found, mut unreadable) = (Vec::new(), None);
    let visit = |deployment: Deployment, _: &str| found.push(ServerVersion::from(deployment));
    for_each_as(client, listing, visit, |name, error| {
        unreadable.get_or_insert_with(|| format!("cannot parse the Deployment {name}: {error}"));
    })
    .await?;
    match unreadable {
        Some(message) => anyhow::bail!(message),
        None => Ok(found),
    }
}

pub fn run(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let VersionArgs {
        output,
        knowledge,
        connect,
    } = args;
    let servers = if connect.is_named() {
        Some(block_on(Servers::read(connect))?)
    } else {
        None
    };
    let about = About {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("TRANSOM_REVISION").filter(|revision| !revision.is_empty()),
        kubernetes: format!("1.{}", Facts::KUBERNETES),
        api_version: API_VERSION,
        rules: catalogue().count(),
        knowledge: knowledge.load().report(today()),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        servers,
    };
    output.report(&about, |out| {
        let About {
            schema: _,
            version,
            revision,
            kubernetes,
            api_version,
            rules,
            knowledge,
            platform,
            servers,
        } = &about;
        let revision = revision
            .map(|revision| format!(" ({revision})"))
            .unwrap_or_default();
        writeln!(out, "transom {version}{revision} {platform}")?;
        writeln!(out, "Kubernetes up to {kubernetes}, {api_version}, {rules} rules")?;
        for line in knowledge.lines() {
            writeln!(out, "{line}")?;
        }
        for line in servers.iter().flat_map(Servers::lines) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_named_with_its_version_and_its_image() {
        let deployment = json!({
            "metadata": {"name": "transom", "labels": {VERSION_LABEL: "0.2.0"}},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "transom", "image": "r/transom@sha256:1"}]}}},
        });
        let server = ServerVersion::from(serde_json::from_value::<Deployment>(deployment).unwrap());
        let servers = |installations| Servers {
            cluster: "production".to_owned(),
            namespace: "transom-system".to_owned(),
            installations,
        };
        assert_eq!(
            servers(vec![server]).lines(),
            ["server 0.2.0: Deployment transom-system/transom in production, r/transom@sha256:1"]
        );
        let bare = ServerVersion::from(Deployment::default());
        assert!(servers(vec![bare]).lines()[0].starts_with("server of an unknown version: "));
        assert!(servers(Vec::new()).lines()[0].contains("--transom-namespace"));
    }
}
