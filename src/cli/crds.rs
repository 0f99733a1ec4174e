//! `transom crds apply`: updates the CustomResourceDefinitions in a cluster to the versions of this program.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::block_on;
use crate::api;
use crate::cluster::client::KubeconfigArgs;

/// Manage the CustomResourceDefinitions in a cluster
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom crds apply
  transom crds apply --context production")]
pub struct CrdsCommandArgs {
    #[command(subcommand)]
    what: CrdsCommand,
}

#[derive(Subcommand, Debug)]
enum CrdsCommand {
    Apply(ApplyArgs),
}

/// Apply the CustomResourceDefinitions that this version of Transom needs
///
/// Helm installs them once and does not change them when a release is upgraded; the chart runs this before an upgrade.
/// Missing ones are created. With kubectl: transom generate crds | kubectl apply --server-side
/// --field-manager=helm --force-conflicts -f -
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom crds apply
  transom crds apply --kubeconfig ~/.kube/config --context production")]
pub struct ApplyArgs {
    #[command(flatten)]
    connect: KubeconfigArgs,
}

/// Helm 4 applies the chart's crds/ with this field manager. With another one, a later `helm install` over
/// definitions that were kept would fail with a conflict.
const FIELD_MANAGER: &str = "helm";

/// Applies both definitions.
pub fn run(args: &CrdsCommandArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        CrdsCommand::Apply(args) => block_on(apply(args))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn apply(args: &ApplyArgs) -> anyhow::Result<()> {
    let client = args.connect.connect().await?.client;
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for definition in api::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let stored = definitions
            .get_metadata_opt(name)
            .await
            .with_context(|| format!("cannot read the CustomResourceDefinition {name}"))?;
        let applied = definitions
            .patch(name, &params, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("cannot apply the CustomResourceDefinition {name}"))?;
        let before = stored.map(|stored| stored.metadata);
        let outcome = outcome(before.as_ref(), &applied.metadata);
        let generation = applied.metadata.generation.unwrap_or_default();
        anstream::println!("{name} {outcome} (generation {generation})");
    }
    Ok(())
}

/// What an apply did. The API server increases the generation when the spec changes, not for labels and annotations;
/// the resourceVersion would not do, because the API server also writes the status.
fn outcome(before: Option<&ObjectMeta>, after: &ObjectMeta) -> &'static str {
    let content = |it: &ObjectMeta| (it.generation, it.labels.clone(), it.annotations.clone());
    match before {
        None => "created",
        Some(before) if content(before) == content(after) => "unchanged",
        Some(_) => "updated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_is_reported_as_what_it_did() {
        let at = |generation: i64, version: &str| ObjectMeta {
            generation: Some(generation),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let labelled = ObjectMeta {
            labels: Some([("app".to_owned(), "transom".to_owned())].into()),
            ..at(1, "9")
        };
        assert_eq!(outcome(None, &at(1, "7")), "created");
        assert_eq!(outcome(Some(&at(1, "7")), &at(2, "8")), "updated");
        assert_eq!(outcome(Some(&at(1, "7")), &labelled), "updated");
        // The API server has written the status meanwhile.
        assert_eq!(outcome(Some(&at(1, "7")), &at(1, "8")), "unchanged");
    }
}
