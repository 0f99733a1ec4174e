//! Reads a cluster once for a scan, evaluates its objects one by one, and builds the report.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use jiff::Timestamp;
use kube::Client;

use super::{ScanArgs, assume, cluster_look_ups};
use crate::check::files::policies;
use crate::cli::READ_RIGHTS;
use crate::cli::image_evidence::{note_names_only, with_registries};
use crate::cli::options::nearest;
use crate::cli::plan::plan_with_registries;
use crate::cli::progress::Progress;
use crate::cluster::client::Connected;
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::errors::ApiError;
use crate::cluster::list::{POD_CARRIERS, UnreadPart};
use crate::cluster::offline::{self, OfflineCluster, OfflineOptions};
use crate::cluster::policy_store::PolicyState;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::ObjectList;
use crate::cluster::walk::{ListItem, walk, walk_lists};
use crate::engine::namespace_selector;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Mode, Policy};
use crate::plan::{NodeInventory, PlanOptions, Planner, UpgradePlan};
use crate::registration::names::non_empty_items;
use crate::registry::Registries;
use crate::scan::pods::PodContext;
use crate::scan::report::{ScanGap, ScanReport, ScannedCluster};
use crate::scan::{EvalContext, PolicyOverrides, ReportHeader, RequiredTaints, Scan, nodes as scan_nodes};

/// Scans the cluster that the arguments name.
pub(super) async fn scan(
    args: &ScanArgs,
    overrides: &PolicyOverrides,
) -> anyhow::Result<(ScanReport, Option<UpgradePlan>)> {
    let of_file = (args.policy.policy.as_deref()).map(|file| policies(Some(file), Policy::cluster_default()));
    let of_file = of_file.transpose()?;
    let (connected, own) = args.connect.connect().await?;
    let progress = Progress::new();
    progress.show("reading nodes, namespaces, policies");
    let client = &connected.client;
    let mut nodes = NodeInventory::default();
    let mut cluster = open(args, &connected, &own, &mut nodes).await?;
    if let Some(of_file) = of_file {
        of_file.declare(&mut cluster.snapshot.facts);
        cluster.snapshot.policies = Arc::new(of_file.set);
        namespace_selector::resolve(&mut cluster.snapshot.facts, &cluster.snapshot.policies);
    }
    cluster.snapshot.facts = predicted(cluster.snapshot.facts, *overrides);
    let mut eval_context = EvalContext::of(&cluster.snapshot).with(overrides);
    let custom = CustomLists::read(client, &eval_context.facts.config.pod_templates).await;
    eval_context = eval_context.listing(&custom.kinds);
    let mut registries = None;
    let facts;
    if args.registry {
        eval_context.policies = Cow::Owned(with_registries(&eval_context.policies));
        let found = cluster_look_ups::look_up(args, client, &eval_context, &progress).await?;
        facts = cluster.snapshot.facts.with_images(found.facts());
        eval_context.facts = &facts;
        registries = Some(found);
    } else {
        note_names_only([&*eval_context.policies], Some("add --registry"));
    }
    let scanning = ScanTask {
        args,
        overrides,
        client,
        name: &connected.name,
        cluster: &cluster,
        custom: &custom,
        eval_context: &eval_context,
        progress: &progress,
    };
    scanning.run(nodes, registries).await
}

/// Reads everything but the objects that carry pods. `nodes` gets the nodes, if they are planned for.
async fn open(
    args: &ScanArgs,
    connected: &Connected,
    own: &str,
    nodes: &mut NodeInventory,
) -> anyhow::Result<OfflineCluster> {
    let excluded = non_empty_items(args.excluded.exclude_namespace.clone());
    let excluded: Vec<String> = excluded.chain([own.to_owned()]).collect();
    let stated = args.cluster_config.load()?;
    let options = OfflineOptions {
        namespace: own,
        installation: &args.installation.name,
        excluded: &excluded,
        namespaces: &args.namespaces.namespace,
        stated: stated.as_ref(),
    };
    let mut visit = |kind, json: &str| {
        if args.plan_to.is_some() {
            // A plan excludes nodes that cannot be read.
            let _ = nodes.visit(kind, json);
        }
    };
    let mut cluster = offline::open(connected, options, &mut visit).await?;
    cluster.snapshot.facts.today = args.today.unwrap_or(cluster.snapshot.facts.today);
    args.knowledge.apply(&mut cluster.snapshot.facts);
    Ok(cluster)
}

/// The facts with what the assumed mode brings: with Warn and Enforce, the labels that node policies only audit.
fn predicted(facts: Facts, overrides: PolicyOverrides) -> Facts {
    let facts = facts.with_predictions();
    let is_audit = matches!(overrides.mode, None | Some(Mode::Audit));
    let assumed = if is_audit { None } else { facts.reconciled() };
    assumed.unwrap_or(facts)
}

/// A cluster of which the objects are not read yet.
struct ScanTask<'s> {
    args: &'s ScanArgs,
    overrides: &'s PolicyOverrides,
    client: &'s Client,
    /// The name of the cluster.
    name: &'s str,
    cluster: &'s OfflineCluster,
    custom: &'s CustomLists,
    eval_context: &'s EvalContext<'s>,
    progress: &'s Progress,
}

impl ScanTask<'_> {
    /// Evaluates the objects, and plans the upgrade that was asked for.
    async fn run(
        &self,
        nodes: NodeInventory,
        mut registries: Option<Registries>,
    ) -> anyhow::Result<(ScanReport, Option<UpgradePlan>)> {
        let (args, cluster) = (self.args, self.cluster);
        let pod_context = PodContext {
            eval_context: self.eval_context,
            nodes: cluster
                .could_read("nodes")
                .then_some(&cluster.snapshot.cache.nodes),
            is_other: &|name| cluster.snapshot.cache.other_nodes.get(name).is_some(),
            knows_classes: cluster.could_read("runtimeclasses"),
        };
        let mut scan = Scan::new(&pod_context, Timestamp::now());
        scan.require(RequiredTaints::of(&cluster.snapshot));
        let is_meant = |labels: &BTreeMap<String, String>| args.selector.selects(labels);
        if !args.selector.is_everything() {
            scan.only(&is_meant);
        }
        let mut planner = planner(args, cluster, nodes, self.eval_context)?;
        let unlisted = self.visit(&mut scan, planner.as_mut()).await;
        let gaps = all_gaps(args, cluster, &unlisted, self.custom);
        let plan = match planner {
            Some(planner) => Some(UpgradePlan {
                unread: gaps.iter().map(ToString::to_string).collect(),
                ..plan_with_registries(planner, registries.as_mut()).await?
            }),
            None => None,
        };
        for gap in gaps {
            scan.gap(gap);
        }
        let report = scan.report(ReportHeader {
            cluster: scanned(self.name, cluster),
            assumed: assume::words(*self.overrides),
            limited_to: args.limits(),
            nodes: scan_nodes(&cluster.snapshot.cache.nodes, &cluster.snapshot.facts),
            node_findings: cluster.snapshot.node_findings(),
            notes: registries.map_or_else(Vec::new, |registries| registries.notes()),
        });
        Ok((report, plan))
    }

    /// Visits the objects that carry pods, and NetworkPolicies if they can have a finding; returns the lists that could not be
    /// read.
    async fn visit(&self, scan: &mut Scan<'_>, mut planner: Option<&mut Planner<'_>>) -> Vec<UnreadPart> {
        let namespaces = &self.args.namespaces.namespace;
        let unlisted = walk(self.client, namespaces, &self.custom.kinds, |met| match met {
            ListItem::List(resource, left) => self.progress.list(resource, scan.objects(), left),
            ListItem::Object(kind, json) => {
                scan.visit(kind, json);
                if let Some(planner) = &mut planner {
                    // The scan names what cannot be read.
                    let _ = planner.visit(kind, json);
                }
            }
        });
        let mut unlisted = unlisted.await;
        // Without the DaemonSets it is not known whether anything enforces them.
        let knows_engines = unlisted.iter().all(|list| list.resource != "daemonsets");
        if knows_engines && scan.needs_network_policies() {
            let lists = vec![ObjectList::network_policies()];
            let policies = walk_lists(self.client, namespaces, lists, |met| match met {
                ListItem::List(resource, left) => self.progress.list(resource, scan.objects(), left),
                ListItem::Object(kind, json) => scan.visit(kind, json),
            });
            unlisted.extend(policies.await);
        }
        self.progress.end();
        unlisted
    }
}

/// The cluster, for the head of the report.
fn scanned(name: &str, cluster: &OfflineCluster) -> ScannedCluster {
    let snapshot = &cluster.snapshot;
    let stored = snapshot.policies.stored();
    // If there are no policies, that is every namespace.
    let without_policy = snapshot
        .namespaces_without_policy()
        .filter(|_| !stored.is_empty());
    ScannedCluster {
        name: name.to_owned(),
        kubernetes: format!("1.{}", snapshot.cache.kubernetes),
        has_webhooks: cluster.has_webhooks,
        policies: (stored.iter()).map(|stored| stored.policy.name.clone()).collect(),
        namespaces_without_policy: without_policy.map(str::to_owned).collect(),
    }
}

/// The planner of the upgrade that was asked for, which has seen the nodes.
fn planner<'w>(
    args: &ScanArgs,
    cluster: &OfflineCluster,
    nodes: NodeInventory,
    eval_context: &'w EvalContext<'w>,
) -> anyhow::Result<Option<Planner<'w>>> {
    let Some(to) = args.plan_to else {
        return Ok(None);
    };
    if let Some(unread) = cluster.gaps().find(|part| part.resource == "nodes") {
        bail!(
            "cannot read nodes, which --plan-to needs: {}; {READ_RIGHTS}",
            unread.why
        );
    }
    let plan_options = PlanOptions::upgrade(to.0, &args.plan_in_place);
    let planner = Planner::new(eval_context.facts, &eval_context.policies, plan_options);
    Ok(Some(planner.with_nodes(nodes)))
}

/// Everything that could not be read.
fn all_gaps(
    args: &ScanArgs,
    cluster: &OfflineCluster,
    unlisted: &[UnreadPart],
    custom: &CustomLists,
) -> Vec<ScanGap> {
    let is_by_file = args.policy.policy.is_some();
    let mut gaps = of_unread(cluster, is_by_file);
    gaps.extend(of_policies(&cluster.snapshot).filter(|_| !is_by_file));
    gaps.extend(of_namespaces(args, cluster));
    gaps.extend(of_lists(unlisted));
    gaps.extend(custom.unknown.iter().map(of_discovery));
    gaps
}

/// What of the cluster besides the objects could not be read. Where Transom was never installed, its resources are no
/// gap, and a policy of a file replaces stored ones.
fn of_unread(cluster: &OfflineCluster, is_by_file: bool) -> Vec<ScanGap> {
    let is_gap = |unread: &&UnreadPart| {
        (cluster.has_webhooks || !unread.is_unknown)
            && !(is_by_file && unread.resource == "windowspodpolicies")
    };
    let gap = |unread: &UnreadPart| ScanGap {
        resource: unread.resource.clone(),
        reason: unread.why.clone(),
        remedy: Some(format!("{}: {READ_RIGHTS}", without(&unread.resource))),
    };
    cluster.unread.iter().filter(is_gap).map(gap).collect()
}

/// What a report lacks without a resource.
fn without(resource: &str) -> &'static str {
    match resource {
        "nodes" => "builds, taints and the nodes of pods were not checked",
        "namespaces" => "their labels are treated as empty when policies are selected",
        "runtimeclasses" => "every pod is treated as process-isolated",
        "windowspodpolicies" => "the built-in policy is assumed to apply",
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            "every namespace is assumed to be selected by the webhooks"
        }
        _ => "it was evaluated without them",
    }
}

/// Stored policies that cannot be used.
fn of_policies(snapshot: &Snapshot) -> impl Iterator<Item = ScanGap> {
    snapshot.outcomes.iter().filter_map(|(name, outcome)| {
        let (error, then) = match outcome {
            PolicyState::InForce(_) => return None,
            PolicyState::LastGood { error, .. } => (error, "its last valid version applies"),
            PolicyState::Skipped { error } => (error, "it does not apply"),
        };
        Some(ScanGap {
            resource: format!("WindowsPodPolicy {name}"),
            reason: format!("it cannot be used, and {then}: {error}"),
            remedy: Some("fix the policy".to_owned()),
        })
    })
}

/// Namespaces that were asked for and do not exist.
fn of_namespaces(args: &ScanArgs, cluster: &OfflineCluster) -> Vec<ScanGap> {
    let snapshot = &cluster.snapshot;
    let is_known = |name: &&String| snapshot.cache.namespaces.contains_key(*name);
    let missing = args.namespaces.namespace.iter().filter(|name| !is_known(name));
    let near = |name: &str| nearest(name, snapshot.cache.namespaces.keys().map(String::as_str));
    missing
        .filter(|_| cluster.could_read("namespaces"))
        .map(|name| ScanGap {
            resource: format!("namespace {name}"),
            reason: "there is no namespace of this name".to_owned(),
            remedy: Some(match near(name) {
                Some(near) => format!("did you mean {near}?"),
                None => "check the spelling: kubectl get namespaces".to_owned(),
            }),
        })
        .collect()
}

/// API groups whose resources the API server does not list.
pub(in crate::cli) fn of_discovery((group, why): &(String, ApiError)) -> ScanGap {
    ScanGap {
        resource: match group.as_str() {
            "*" => "custom resources that describe pods".to_owned(),
            group => format!("custom resources of {group}"),
        },
        reason: format!("the API server does not say which it serves: {why}"),
        remedy: Some("run this again".to_owned()),
    }
}

/// Lists of objects that could not be read; a namespace without any readable list is reported once.
fn of_lists(unlisted: &[UnreadPart]) -> Vec<ScanGap> {
    let mut forbidden: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let own = |list: &&UnreadPart| list.is_forbidden && !list.is_custom;
    for list in unlisted.iter().filter(own) {
        *forbidden.entry(list.namespace.as_deref()).or_default() += 1;
    }
    let is_whole = |namespace: Option<&str>| forbidden.get(&namespace) == Some(&POD_CARRIERS.len());
    let mut gaps = Vec::new();
    for list in unlisted {
        let namespace = list.namespace.as_deref();
        let (what, is_reported) = match (namespace, is_whole(namespace)) {
            (Some(name), true) => (format!("namespace {name}"), gaps_name(&gaps, name)),
            (None, true) => ("every object that carries a pod".to_owned(), !gaps.is_empty()),
            (Some(name), false) => (format!("{} of the namespace {name}", list.resource), false),
            (None, false) => (list.resource.clone(), false),
        };
        if is_reported {
            continue;
        }
        let rights = if is_whole(namespace) {
            let resources = POD_CARRIERS.map(|(_, path)| path.rsplit('/').next().unwrap_or(path));
            format!(
                "grant this account read access (get, list) to {}",
                resources.join(", ")
            )
        } else {
            READ_RIGHTS.to_owned()
        };
        let remedy = match (list.is_forbidden, namespace) {
            (true, None) => {
                format!("{rights}; if you may read only some namespaces, name them with --namespace")
            }
            (true, Some(_)) => rights,
            (false, _) => "scan again".to_owned(),
        };
        gaps.push(ScanGap {
            resource: what,
            reason: list.reason(),
            remedy: Some(remedy),
        });
    }
    gaps
}

fn gaps_name(gaps: &[ScanGap], namespace: &str) -> bool {
    let what = format!("namespace {namespace}");
    gaps.iter().any(|gap| gap.resource == what)
}
