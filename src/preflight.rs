//! Preflight: what Transom would do in a cluster that is without it, and the values to install it with. Reads nothing by itself.

mod autoscaler;
mod daemon_sets;
mod install;
mod nodes;
pub mod others;
mod platform;
mod pools;
pub mod text;
mod values;
mod wanted;
mod workloads;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::around::Around;
use crate::cluster::snapshot::Snapshot;
use crate::model::build::{Release, supported_on};
use crate::model::named::named;
use crate::model::node::major_minor;
use crate::model::text::list;
use crate::plan::Plan;
use crate::render::can_move;
use crate::scan::report::Gap;

pub use self::platform::Platform;
pub use self::values::{Entry, Values};
pub use self::wanted::facts;
pub use self::workloads::{Owner, Workloads, excluded};

/// The version of the report's JSON.
pub const SCHEMA: &str = "transom.dev/preflight/v1";

/// How many names stand in one line of evidence.
const MOST: usize = 5;

/// The oldest minor release of Kubernetes that Transom runs on.
const OLDEST: u32 = 30;

/// What was read of a cluster, as one value.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'s> {
    /// Nodes, RuntimeClasses and namespaces, with the facts that they make.
    pub snapshot: &'s Snapshot,
    /// What stands around Transom.
    pub around: &'s Around,
    /// Which platform it is.
    pub platform: &'s Platform,
    /// The resources that could not be listed, as in `nodes`; not the workloads.
    pub unread: &'s BTreeSet<String>,
}

impl Sight<'_> {
    /// Whether all of these resources could be listed.
    fn could_list(&self, resources: &[&str]) -> bool {
        !resources.iter().any(|resource| self.unread.contains(*resource))
    }
}

/// The whole report.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// When it was made.
    pub at: Timestamp,
    /// The release of Kubernetes, as the API server says it.
    pub kubernetes: String,
    /// The name of the platform, as its file of values is called.
    pub platform: &'static str,
    /// What it all adds up to.
    pub summary: Summary,
    /// What was seen, by subject.
    pub sections: Vec<Section>,
    /// The workloads that would be denied, by namespace, kind and name.
    pub denied: Vec<Owner>,
    /// The values to install with.
    pub values: Values,
    /// What could not be read or judged.
    pub gaps: Vec<Gap>,
    /// Whether everything was read that decides what would be denied.
    #[serde(skip)]
    pub is_known: bool,
}

/// Counts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Objects that were read.
    pub objects: usize,
    /// Top owners for Windows.
    pub windows: usize,
    /// Those of any kind that would be refused at their next create.
    pub denied: usize,
    /// Those of the refused that would only be warned of with `validation.ignoredFields: Warn`.
    pub softened: usize,
    /// Those whose pods would be changed.
    pub changed: usize,
    /// Windows nodes.
    pub windows_nodes: usize,
    /// Objects that could not be read.
    pub unreadable: usize,
    /// Kinds of workloads that could not be listed, as in `deployments`: what would be denied of them is not known.
    pub not_listed: Vec<String>,
}

/// What was seen of one subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    /// Its title.
    pub title: &'static str,
    /// What there is to say.
    pub statements: Vec<Statement>,
}

named! {
    /// What is to be done about a statement.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Weight {
        /// Nothing.
        Fine = "fine",
        /// Something, by who installs Transom.
        Act = "act",
    }
}

/// One thing that was seen, with what says so and what ends it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// Whether something is to be done.
    pub weight: Weight,
    /// What was seen: lower case, no full stop.
    pub text: String,
    /// The objects that say so.
    pub evidence: Vec<String>,
    /// What ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Statement {
    /// Something that is as it should be.
    fn fine(text: impl Into<String>) -> Self {
        Statement {
            weight: Weight::Fine,
            text: text.into(),
            evidence: Vec::new(),
            cure: None,
        }
    }

    /// Something that is to be ended, and how.
    fn act(text: impl Into<String>, cure: impl Into<String>) -> Self {
        Statement {
            weight: Weight::Act,
            cure: Some(cure.into()),
            ..Statement::fine(text)
        }
    }

    /// The same with what says so.
    fn by<N: AsRef<str>>(mut self, evidence: impl IntoIterator<Item = N>) -> Self {
        let evidence: Vec<String> = evidence
            .into_iter()
            .map(|name| name.as_ref().to_owned())
            .collect();
        let more = evidence.len().saturating_sub(MOST);
        self.evidence = evidence.into_iter().take(MOST).collect();
        if more > 0 {
            self.evidence.push(format!("{more} more"));
        }
        self
    }
}

impl Preflight {
    /// The report of a cluster in which these workloads were judged. `gaps`: what could not be read.
    /// `plan`: what a move to the [newest build](newest) takes, where that was planned.
    pub fn new(
        sight: Sight<'_>,
        workloads: Workloads<'_>,
        plan: Option<&Plan>,
        mut gaps: Vec<Gap>,
        at: Timestamp,
    ) -> Self {
        let mut wanted = install::values(sight, &workloads);
        let is_known = workloads.not_known(sight).is_none();
        let sections = vec![
            Section {
                title: "Platform",
                statements: platform_statements(sight, &workloads),
            },
            Section {
                title: "Nodes",
                statements: nodes::statements(sight, plan, &mut wanted),
            },
            Section {
                title: "Pools at zero nodes",
                statements: pools::statements(sight, &workloads),
            },
            Section {
                title: "RuntimeClasses",
                statements: nodes::classes(sight),
            },
            Section {
                title: "Workloads",
                statements: workloads.statements(),
            },
            Section {
                title: "DaemonSets",
                statements: workloads.daemon_set_statements(),
            },
            Section {
                title: "Other engines",
                statements: others::statements(sight, &workloads),
            },
        ];
        let summary = Summary {
            objects: workloads.objects,
            windows: workloads.windows,
            denied: workloads.denied_count(),
            softened: workloads.softened(),
            changed: workloads.changed,
            windows_nodes: nodes::windows(sight.snapshot).count(),
            unreadable: workloads.unreadable_count(),
            not_listed: workloads.not_listed.iter().cloned().collect(),
        };
        let mut denied = workloads.denied;
        denied.sort();
        gaps.extend(workloads.unreadable);
        Preflight {
            schema: SCHEMA,
            at,
            kubernetes: sight.around.version.clone(),
            platform: sight.platform.name,
            summary,
            sections,
            denied,
            values: wanted,
            gaps,
            is_known,
        }
    }
}

impl Preflight {
    /// Whether the values let reviews deny.
    fn enforces(&self) -> bool {
        let mut entries = self.values.entries.iter();
        entries.any(|entry| entry.path == ["policy", "spec", "mode"] && entry.value == "Enforce")
    }
}

/// A number of things, as in `1 node` and `2 nodes`.
fn count(number: usize, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}

fn platform_statements(sight: Sight<'_>, workloads: &Workloads<'_>) -> Vec<Statement> {
    let mut all = Vec::new();
    let version = &sight.around.version;
    match major_minor(version) {
        Some((1, minor)) if minor < OLDEST => all.push(
            Statement::act(
                format!("Kubernetes is {version}; Transom needs 1.{OLDEST} or later"),
                format!("upgrade the control plane to 1.{OLDEST} or later first"),
            )
            .by(["the API server"]),
        ),
        _ => all.push(Statement::fine(format!("Kubernetes is {version}")).by(["the API server"])),
    }
    let file = format!("charts/transom/platforms/{}.yaml", sight.platform.name);
    if sight.platform.told_by.is_empty() && !sight.could_list(&["nodes"]) {
        all.push(Statement::act(
            "not known (not read): the platform, of which nodes tell most",
            "choose its file of charts/transom/platforms by yourself",
        ));
    }
    all.push(
        Statement::fine(format!(
            "the platform is {}; its file of values is {file}",
            sight.platform.title
        ))
        .by(sight.platform.told_by.iter()),
    );
    if sight.snapshot.view.pod_policies.is_empty() && !sight.around.groups.contains_key("transom.dev") {
        all.push(Statement::fine("Transom is not installed"));
    } else {
        all.push(
            Statement::act(
                "the kinds of Transom are known here already: it is installed, or was",
                "where it is installed, transom scan says what it does with what is stored",
            )
            .by(["API group transom.dev"]),
        );
    }
    if sight.platform.name == "eks" && !workloads.networks.iter().any(|name| name.ends_with("/aws-node")) {
        let others = workloads.networks.iter();
        let others: Vec<&String> = others
            .filter(|name| name.ends_with("/calico-node") || name.ends_with("/cilium"))
            .collect();
        if !others.is_empty() {
            all.push(
                Statement::act(
                    "the pods' network is not that of the VPC, so the control plane of EKS may not reach pods",
                    "put Transom on the host network: hostNetwork: true, ports.webhook: 10260, ports.health: 10261 \
                     (docs/how-to/install.md, The host network)",
                )
                .by(others.iter().map(|name| format!("DaemonSet {name}"))),
            );
        }
    }
    all
}

/// The newest build that the cluster's Kubernetes supports, where it has Windows nodes of older ones.
pub fn newest(snapshot: &Snapshot) -> Option<&'static Release> {
    let support = supported_on(snapshot.facts.kubernetes)?;
    let newest = *support.builds.last()?;
    let has_older = snapshot.facts.builds().iter().any(|build| *build < newest);
    newest.release().filter(|_| has_older)
}

/// The command that says what a move to the newest build takes, and what it would say in short.
fn plan_hint(sight: Sight<'_>, plan: Option<&Plan>) -> Option<Statement> {
    let facts = &sight.snapshot.facts;
    let target = newest(sight.snapshot)?;
    let older: Vec<String> = (facts.builds().iter())
        .filter(|build| **build < target.build)
        .map(|build| {
            let release = build.release().map(|release| format!(" ({})", release.product));
            format!("{build}{}", release.unwrap_or_default())
        })
        .collect();
    let in_short = plan.map_or_else(String::new, |plan| {
        format!("; {} (assumed placement: {})", can_move(plan), plan.placement)
    });
    Some(Statement {
        cure: Some(format!(
            "transom plan --to {} says what a move to {} takes",
            target.name, target.product
        )),
        ..Statement::fine(format!(
            "there is a newer build than {} that Kubernetes 1.{} supports: {} ({}){in_short}",
            list(&older, MOST),
            facts.kubernetes,
            target.build,
            target.product
        ))
    })
}

#[cfg(test)]
mod tests;
