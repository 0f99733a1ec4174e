//! The flags that describe the cluster: release, container runtime, feature gates.

use std::path::PathBuf;
use std::sync::Once;

use anyhow::{Context as _, anyhow};
use clap::Args;
use jiff::civil::Date;

use super::options::one_of;
use super::{is_quiet, warn_line};
use crate::cluster::snapshot::StatedCluster;
use crate::cluster::stated_cluster;
use crate::model::cluster::facts::{Facts, Runtime};
use crate::model::cluster::feature_gates::parse;
use crate::model::nodes::node::major_minor;
use crate::process::files::{self, Accept};

/// What kind of cluster it is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The Kubernetes version of the cluster, as in 1.36; one to three minors newer than 1.37 are evaluated as 1.37 [default:
    /// 1.37]
    #[arg(long, env = "TRANSOM_KUBERNETES_VERSION", value_name = "VERSION", value_parser = release)]
    kubernetes_version: Option<u32>,
    /// The container runtime of the Windows nodes
    #[arg(long, env = "TRANSOM_RUNTIME", default_value = "containerd",
          value_parser = one_of(Runtime::ALL, Runtime::as_str))]
    runtime: Runtime,
    /// A feature gate that the cluster sets, of those that rules read. Repeatable
    #[arg(
        long = "feature-gate",
        env = "TRANSOM_FEATURE_GATES",
        value_name = "NAME=true|false",
        value_delimiter = ',',
        value_parser = gate
    )]
    feature_gates: Vec<String>,
}

/// What administrators state about the cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterConfigArgs {
    /// A file of facts about the cluster that its API does not show, as the value cluster of the chart has them: controllers,
    /// pod templates, node labels that mean Windows. Without it, commands that read a cluster use the ConfigMap of the
    /// installation
    #[arg(long, env = "TRANSOM_CLUSTER_CONFIG", value_name = "FILE")]
    pub cluster_config: Option<PathBuf>,
}

impl ClusterConfigArgs {
    /// What the file states; `None` without a file.
    ///
    /// # Errors
    /// The file cannot be read or used.
    pub fn load(&self) -> anyhow::Result<Option<StatedCluster>> {
        let read = |file: &PathBuf| {
            let name = file.display().to_string();
            let bytes = files::read(file, Accept::RegularOrPipe, files::POLICY_BYTES)
                .with_context(|| format!("cannot read the facts about the cluster {name}"))?;
            stated_cluster::read(&name, bytes)
                .map_err(|problem| anyhow!("the facts about the cluster cannot be used: {problem}"))
        };
        self.cluster_config.as_ref().map(read).transpose()
    }
}

impl ClusterArgs {
    /// Facts with only these values and a date.
    pub fn facts(&self, today: Date) -> Facts {
        self.facts_or(Facts::KUBERNETES, today)
    }

    /// The same, with this version of Kubernetes (its minor) if no argument sets one.
    pub fn facts_or(&self, kubernetes: u32, today: Date) -> Facts {
        let minor = self.kubernetes_version.unwrap_or(kubernetes);
        // Both parsers refuse a version that is too new.
        let evaluated = Facts::known_minor(minor).unwrap_or(Facts::KUBERNETES);
        if evaluated != minor {
            note_newer(minor);
        }
        let mut facts = Facts::new(evaluated, today);
        facts.runtime = self.runtime;
        for gate in &self.feature_gates {
            // The parser refuses what cannot be set.
            let _ = facts.feature_gates.set(gate);
        }
        facts
    }
}

/// Notes once that the cluster's version is newer than the catalogue.
fn note_newer(minor: u32) {
    static NOTED: Once = Once::new();
    if is_quiet() {
        return;
    }
    let newest = Facts::KUBERNETES;
    NOTED.call_once(|| {
        warn_line(format_args!(
            "note: Kubernetes 1.{minor} is newer than this Transom knows; it is evaluated as 1.{newest}"
        ));
    });
}

fn gate(text: &str) -> Result<String, String> {
    parse(text).map(|_| text.to_owned())
}

/// Parses `1.36` or `v1.36.2` as 36.
fn release(text: &str) -> Result<u32, String> {
    match major_minor(text) {
        Some((1, minor)) => Facts::known_minor(minor).map(|_| minor),
        _ => Err("write the version as in 1.37".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn the_help_names_the_default_version() {
        assert_eq!(crate::model::cluster::facts::Facts::KUBERNETES, 37);
    }

    #[test]
    fn releases_are_read_as_people_write_them() {
        assert_eq!(release("1.36"), Ok(36));
        assert_eq!(release("v1.30.2"), Ok(30));
        assert_eq!(release("1.40"), Ok(40));
        for bad in ["36", "2.1", "", "latest", "1.41"] {
            assert!(release(bad).is_err(), "{bad}");
        }
    }
}
