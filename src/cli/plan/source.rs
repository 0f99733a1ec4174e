//! Where commands that plan read objects: files, or a cluster; and how they ask registries about images.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use jiff::civil::Date;
use kube::Client;

use crate::check::files::policies;
use crate::check::{Manifests, read_policies_after};
use crate::cli::cluster::{ClusterArgs, ClusterConfigArgs};
use crate::cli::knowledge::KnowledgeArgs;
use crate::cli::manifest_inputs::read_all;
use crate::cli::options::{PathArgs, PolicyArgs, date};
use crate::cli::registry::look_up;
use crate::cli::{READ_RIGHTS, block_on};
use crate::cluster::client::{ConnectArgs, Connected, InstallationArgs, NoCluster, Resend};
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::offline::{self, ObjectsInFiles, OfflineOptions};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::walk::{ListItem, walk};
use crate::engine::namespace_selector;
use crate::model::cluster::policy::Policy;
use crate::plan::{NodeInventory, PlanOptions, Planner};
use crate::process::today;
use crate::registry::Registries;

/// The files or the cluster with the objects.
#[derive(Args, Debug)]
pub struct PlanSourceArgs {
    #[command(flatten)]
    paths: PathArgs,
    /// The day to plan for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    of_cluster: ClusterSourceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The cluster with the objects, and the policies that apply.
#[derive(Args, Debug)]
pub struct ClusterSourceArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    knowledge: KnowledgeArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What a plan is for, and with which options.
pub struct Planning {
    pub options: PlanOptions,
    /// The registries to ask; `None` if they are not asked.
    pub registries: Option<Registries>,
}

impl PlanSourceArgs {
    /// What `finish` makes of the objects, and what could not be read.
    ///
    /// # Errors
    /// If the cluster cannot be reached, a policy cannot be read, or `finish` fails.
    pub fn read<T>(
        &self,
        mut planning: Planning,
        finish: impl Fn(&Planner<'_>, Option<&Registries>) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Vec<String>)> {
        let files: Vec<&PathBuf> = self.paths.all().collect();
        if files.is_empty() {
            block_on(async {
                let connected = self.of_cluster.connect().await;
                let connected = connected.map_err(|error| match error.downcast_ref::<NoCluster>() {
                    Some(none) => anyhow::anyhow!("{none}, or give files"),
                    None => error,
                })?;
                self.of_cluster
                    .read(&connected, self.today(), &mut planning, finish)
                    .await
            })
        } else {
            self.of_files(&files, &mut planning, finish)
        }
    }

    fn of_files<T>(
        &self,
        files: &[&PathBuf],
        planning: &mut Planning,
        finish: impl Fn(&Planner<'_>, Option<&Registries>) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Vec<String>)> {
        let mut manifests = read_all(files.iter().copied())?;
        // Reports those that are invalid, with their positions.
        read_policies_after(&mut manifests, 0, self.of_cluster.policy.policy.is_none());
        let mut objects = ObjectsInFiles::new(self.of_cluster.connect.namespace_of_files());
        let unreadable = manifests.visit_cluster(|kind, json| objects.visit(kind, json));
        let mut facts = self.cluster.facts(self.today());
        if let Some(stated) = self.of_cluster.cluster_config.load()? {
            facts.set_config(stated.config);
        }
        let mut snapshot = objects.snapshot(facts);
        let visit = async |planner: &mut Planner<'_>| visit_files(&manifests, planner);
        let nodes = NodeInventory::default();
        snapshot.facts.today = self.today();
        let planned = (self.of_cluster).of_snapshot(planning, (&mut snapshot, &nodes), visit, finish);
        let (planned, mut errors) = block_on(planned)?;
        errors.extend(unreadable.iter().map(ToString::to_string));
        Ok((planned, errors))
    }

    fn today(&self) -> Date {
        self.today.unwrap_or_else(today)
    }
}

impl ClusterSourceArgs {
    /// The cluster, and Transom's namespace in it.
    ///
    /// # Errors
    /// If no cluster is configured.
    pub async fn connect(&self) -> anyhow::Result<(Connected, String)> {
        self.connect.connect().await
    }

    /// The same, with a client that sends each request once.
    ///
    /// # Errors
    /// If no cluster is configured.
    pub async fn connect_once(&self) -> anyhow::Result<(Connected, String)> {
        self.connect.connect_as(Resend::Never).await
    }

    /// The flags that connect to the same cluster as the same user, as words.
    pub fn connection(&self) -> Vec<String> {
        self.connect.words()
    }

    /// The plan for a snapshot and what is visited: the same for a cluster and for files.
    async fn of_snapshot<T>(
        &self,
        planning: &mut Planning,
        (snapshot, nodes): (&mut Snapshot, &NodeInventory),
        visit: impl AsyncFn(&mut Planner<'_>) -> Vec<String>,
        finish: impl Fn(&Planner<'_>, Option<&Registries>) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Vec<String>)> {
        self.knowledge.apply(&mut snapshot.facts);
        let policies = match &self.policy.policy {
            Some(path) => {
                let of_file = policies(Some(path), Policy::standalone())?;
                of_file.declare(&mut snapshot.facts);
                namespace_selector::resolve(&mut snapshot.facts, &of_file.set);
                of_file.set
            }
            None => (*snapshot.policies).clone(),
        };
        let facts = &snapshot.facts;
        let options = planning.options.clone();
        let new = || Planner::new(facts, &policies, options.clone()).with_nodes(nodes.clone());
        let registries = planning.registries.as_mut();
        let (planner, errors) = planned(registries, new, visit).await;
        Ok((finish(&planner, planning.registries.as_ref())?, errors))
    }

    /// What `finish` makes of the objects of a connected cluster, and what could not be read.
    ///
    /// # Errors
    /// If the cluster cannot be reached, a policy cannot be read, or `finish` fails.
    pub async fn read<T>(
        &self,
        (connected, namespace): &(Connected, String),
        today: Date,
        planning: &mut Planning,
        finish: impl Fn(&Planner<'_>, Option<&Registries>) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Vec<String>)> {
        let client = &connected.client;
        let stated = self.cluster_config.load()?;
        let options = OfflineOptions {
            namespace,
            installation: &self.installation.name,
            excluded: &[],
            namespaces: &[],
            stated: stated.as_ref(),
        };
        let mut nodes = NodeInventory::default();
        let mut errors = Vec::new();
        let mut visit = |kind, json: &str| {
            if let Err(error) = nodes.visit(kind, json) {
                errors.push(format!("cannot read a {kind}: {error}"));
            }
        };
        let mut cluster = offline::open(connected, options, &mut visit).await?;
        if nodes.is_empty()
            && let Some(part) = cluster.gaps().find(|part| part.resource == "nodes")
        {
            bail!(
                "cannot read nodes, without which nothing can be planned: {}; {READ_RIGHTS}",
                part.why
            );
        }
        let unread = cluster.gaps();
        errors
            .extend(unread.map(|part| format!("cannot read {}: {}; {READ_RIGHTS}", part.resource, part.why)));
        cluster.snapshot.facts.today = today;
        let visit = async |planner: &mut Planner<'_>| visit_cluster(client, planner).await;
        let of_snapshot = self.of_snapshot(planning, (&mut cluster.snapshot, &nodes), visit, finish);
        let (planned, unlisted) = of_snapshot.await?;
        errors.extend(unlisted);
        Ok((planned, errors))
    }
}

/// Visits the objects of files; returns what could not be read.
fn visit_files(manifests: &Manifests, planner: &mut Planner<'_>) -> Vec<String> {
    let mut unreadable = manifests.unreadable();
    for pass in 0..Planner::PASSES {
        unreadable.extend(manifests.visit(|kind, json| {
            if Planner::pass(kind) == Some(pass) {
                planner.visit(kind, json).map_err(|error| error.to_string())
            } else {
                Ok(())
            }
        }));
    }
    unreadable.iter().map(ToString::to_string).collect()
}

/// Visits the workloads and pods of a cluster; returns what could not be read.
async fn visit_cluster(client: &Client, planner: &mut Planner<'_>) -> Vec<String> {
    let mut errors = Vec::new();
    let mut custom = CustomLists::default();
    if planner.reads_custom_resources() {
        custom = CustomLists::read(client, planner.configured_kinds()).await;
        let unknown = custom.unknown.iter();
        errors.extend(
            unknown.map(|(group, why)| format!("cannot find out what the API group {group} has: {why}")),
        );
    }
    let unlisted = walk(client, &[], &custom.kinds, |met| {
        if let ListItem::Object(kind, json) = met
            && let Err(error) = planner.visit(kind, json)
        {
            errors.push(format!("cannot read a {kind}: {error}"));
        }
    });
    let unlisted = unlisted.await;
    errors.extend(unlisted.into_iter().map(|list| {
        let remedy = if list.is_forbidden {
            format!("; {READ_RIGHTS}")
        } else {
            String::new()
        };
        format!("cannot list {}: {}{remedy}", list.resource, list.why)
    }));
    errors
}

/// The planner that has visited everything, and knows what registries report if they are asked.
async fn planned<'f>(
    registries: Option<&mut Registries>,
    new: impl Fn() -> Planner<'f>,
    visit: impl AsyncFn(&mut Planner<'_>) -> Vec<String>,
) -> (Planner<'f>, Vec<String>) {
    let Some(registries) = registries else {
        let mut planner = new();
        let errors = visit(&mut planner).await;
        return (planner, errors);
    };
    let mut planner = new().with_registries();
    let mut errors = visit(&mut planner).await;
    // The number of images is limited: those of known Windows workloads come first.
    look_up_open(registries, &mut planner).await;
    look_up(registries, planner.undecided_images()).await;
    learn(&mut planner, registries);
    if planner.must_visit_again() {
        planner = new();
        planner.learn(registries.facts());
        errors = visit(&mut planner).await;
        look_up_open(registries, &mut planner).await;
    }
    (planner, errors)
}

/// Looks up the images whose builds the plan needs.
pub async fn look_up_open(registries: &mut Registries, planner: &mut Planner<'_>) {
    // Images of which the builds become known may have others proposed for them.
    for _ in 0..2 {
        look_up(registries, planner.open_images()).await;
        learn(planner, registries);
    }
}

fn learn(planner: &mut Planner<'_>, registries: &Registries) {
    planner.learn(registries.facts());
    let answers = registries.answers().iter();
    let unanswered =
        answers.filter_map(|(image, answer)| Some((image.clone(), answer.facts.as_ref().err()?.clone())));
    planner.learn_unanswered(unanswered.collect());
}
