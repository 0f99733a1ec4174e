//! `transom probe`: checks whether the API server calls Transom. The chart's test runs it.

use std::process::ExitCode;

use clap::Args;

use super::{block_on, print_line};
use crate::cluster::client::ClusterClientArgs;
use crate::controller::webhook_probe::{self, ProbeResult};

/// Check that the API server calls Transom, with a pod that is created as a dry run
///
/// Creates a Windows pod as a dry run. /mutate marks this pod and /validate denies it regardless of the policies,
/// so the answer shows which webhooks were called, and nothing is stored. Needs permission to create pods in the
/// namespace, which the webhooks must select. `helm test` runs this command.
///
/// Exit status: 0 both webhooks were called; 1 one of them was not, or another installation was called too; 2 bad usage, or
/// the answer does not show it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom probe
  transom probe -n transom-probe --context production")]
pub struct ProbeArgs {
    /// The namespace of the pod
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    #[command(flatten)]
    connect: ClusterClientArgs,
}

pub fn run(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let ProbeArgs { connect, namespace } = args;
    let (cluster, arrival) = block_on(async {
        let connected = connect.connect().await?;
        Ok((
            connected.name,
            webhook_probe::once(connected.client, namespace).await,
        ))
    })?;
    match &arrival {
        ProbeResult::Arrives => {
            print_line(format_args!(
                "{cluster}: the API server calls /mutate and /validate"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        // A namespace that the webhooks exclude looks the same: only the leader knows the registration.
        ProbeResult::Lost { .. } => {
            print_line(format_args!(
                "{cluster}: {}. If the webhooks do not select the namespace {namespace}, name another one with --namespace",
                problem(&arrival)
            ))?;
            Ok(ExitCode::FAILURE)
        }
        ProbeResult::Shared(_) => {
            print_line(format_args!("{cluster}: {}", problem(&arrival)))?;
            Ok(ExitCode::FAILURE)
        }
        ProbeResult::Unknown(why) => {
            anyhow::bail!("cannot determine whether the API server calls Transom: {why}")
        }
    }
}

fn problem(arrival: &ProbeResult) -> String {
    arrival.problem().map_or_else(String::new, |it| it.message)
}
