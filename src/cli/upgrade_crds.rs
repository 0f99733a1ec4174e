//! `transom upgrade-crds`: brings the CustomResourceDefinitions in a cluster to those that this program knows.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::block_on;
use crate::api;
use crate::cluster::client::ConnectArgs;

/// Bring the CustomResourceDefinitions in a cluster up to date
///
/// Helm installs them once and leaves them as they are when a release is upgraded; the chart runs this before an
/// upgrade. They are made where they are missing. The same by hand: transom generate crds | kubectl apply
/// --server-side --field-manager=helm --force-conflicts -f -
#[derive(Args, Debug)]
pub struct UpgradeCrdsArgs {
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Helm 4 applies the chart's crds/ under this name at an installation. Under another one its next installation over
/// definitions that were kept would end in a conflict.
const FIELD_MANAGER: &str = "helm";

/// Applies both definitions.
pub fn run(args: &UpgradeCrdsArgs) -> anyhow::Result<ExitCode> {
    block_on(apply(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn apply(args: &UpgradeCrdsArgs) -> anyhow::Result<()> {
    let (client, _) = args.connect.connect().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for definition in api::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let applied = definitions
            .patch(name, &params, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("cannot apply the CustomResourceDefinition {name}"))?;
        let generation = applied.metadata.generation.unwrap_or_default();
        anstream::println!("{name} is up to date (generation {generation})");
    }
    Ok(())
}
