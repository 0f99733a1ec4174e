//! `transom crds apply`: updates the CustomResourceDefinitions in a cluster to the versions of this program.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::{block_on, print_line};
use crate::api;
use crate::cluster::client::ClusterClientArgs;

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
///
/// A definition of a newer version stays: an older one would drop the newer fields of stored policies.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom crds apply
  transom crds apply --kubeconfig ~/.kube/config --context production
  transom crds apply --force")]
pub struct ApplyArgs {
    /// Also replace definitions of a newer version; fields of policies that only they have are lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ClusterClientArgs,
}

/// Helm 4 applies the chart's crds/ with this field manager. With another one, a later `helm install` over
/// definitions that were kept would fail with a conflict.
const FIELD_MANAGER: &str = "helm";

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

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
        let newer = stored.as_ref().and_then(|stored| newer_version(&stored.metadata));
        if let Some(newer) = newer.filter(|_| !args.force) {
            print_line(format_args!(
                "{name} kept: it is of version {newer}, which is newer than {OWN_VERSION}; --force replaces it"
            ))?;
            continue;
        }
        let applied = definitions
            .patch(name, &params, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("cannot apply the CustomResourceDefinition {name}"))?;
        let before = stored.map(|stored| stored.metadata);
        let outcome = outcome(before.as_ref(), &applied.metadata);
        let generation = applied.metadata.generation.unwrap_or_default();
        print_line(format_args!("{name} {outcome} (generation {generation})"))?;
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

/// The version of a stored definition if it is newer than this program. A definition without a version is older.
fn newer_version(stored: &ObjectMeta) -> Option<&str> {
    let version = stored.annotations.as_ref()?.get(api::VERSION_ANNOTATION)?;
    (precedence(version)? > precedence(OWN_VERSION)?).then_some(version)
}

/// The order of versions. A pre-release is older than its release; pre-releases of one version are not compared.
fn precedence(version: &str) -> Option<([u64; 3], bool)> {
    let (version, _build) = version.split_once('+').unwrap_or((version, ""));
    let (numbers, is_release) = match version.split_once('-') {
        Some((numbers, _)) => (numbers, false),
        None => (version, true),
    };
    let numbers: Result<Vec<u64>, _> = numbers.split('.').map(str::parse).collect();
    Some((numbers.ok()?.try_into().ok()?, is_release))
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

    #[test]
    fn versions_have_the_order_of_semver() {
        let ascending = [
            "0.1.0",
            "0.9.0",
            "0.10.0-rc.1",
            "0.10.0",
            "0.10.1",
            "1.0.0-alpha",
            "1.0.0",
        ];
        for pair in ascending.windows(2) {
            assert!(
                precedence(pair[0]).unwrap() < precedence(pair[1]).unwrap(),
                "{pair:?}"
            );
        }
        assert_eq!(precedence("1.2.3+build-7"), precedence("1.2.3"));
        assert_eq!(["", "1.2", "v1.2.3", "1.2.x"].map(precedence), [None; 4]);
    }

    #[test]
    fn only_a_definition_with_a_newer_version_is_kept() {
        let of = |version: &str| ObjectMeta {
            annotations: Some([(api::VERSION_ANNOTATION.to_owned(), version.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(newer_version(&of("999.0.0")), Some("999.0.0"));
        for older in [
            &of("0.0.1"),
            &of(OWN_VERSION),
            &of("latest"),
            &ObjectMeta::default(),
        ] {
            assert_eq!(newer_version(older), None, "{older:?}");
        }
    }
}
