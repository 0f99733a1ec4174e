//! Checks which workloads of a log are fixed: reads each from its cluster, and evaluates it as if it were
//! created again.

use std::collections::BTreeMap;

use anyhow::bail;
use futures::{StreamExt as _, stream};
use kube::Client;

use crate::audit_log::{AuditReport, CurrentState, WorkloadRow};
use crate::cli::warn_line;
use crate::cluster::client::{ConnectArgs, Connected};
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::errors::ApiError;
use crate::cluster::list::Listing;
use crate::cluster::offline::{self, OfflineOptions};
use crate::cluster::snapshot::Snapshot;
use crate::model::objects::workload::Kind;
use crate::model::syntax::dns::is_subdomain;
use crate::model::syntax::text::list;
use crate::registration::excluded_by_default;
use crate::scan::{EvalContext, Evaluated, OwnerResult, SkipReason, evaluate_stored as look_at};

/// The name of the installation whose webhook configurations are read.
const INSTALLATION: &str = "transom";
/// The maximum number of workloads to read.
const MOST: usize = 2000;
/// The number of concurrent requests.
const AT_ONCE: usize = 8;
/// The resources that an evaluation needs: if one cannot be read, no workload is reported as fixed.
const NEEDED: [&str; 5] = [
    "windowspodpolicies",
    "namespaces",
    "nodes",
    "runtimeclasses",
    "csinodes",
];

/// A workload by namespace and display name.
type NamedWorkload = (String, String);

/// Checks every workload of a report that was denied or would have been.
///
/// # Errors
/// If the logs are of several clusters, or the cluster cannot be reached.
pub async fn check_workloads(connect: &ConnectArgs, report: &mut AuditReport) -> anyhow::Result<()> {
    if report.clusters.len() > 1 {
        let names: Vec<&str> = report
            .clusters
            .iter()
            .map(|cluster| cluster.name.as_str())
            .collect();
        bail!(
            "--check-cluster reads one cluster, and the logs are of {}: read the logs of one at a time",
            names.join(", ")
        );
    }
    let is_reported = |row: &WorkloadRow| row.counts.denials() > 0;
    let mut workloads: BTreeMap<NamedWorkload, Option<CurrentState>> = (report.rows.iter())
        .filter(|row| is_reported(row))
        .map(|row| ((row.namespace.clone(), row.workload.clone()), None))
        .collect();
    if workloads.is_empty() {
        return Ok(());
    }
    let (connected, namespace) = connect.connect().await?;
    let (snapshot, lacks) = snapshot(&connected, &namespace).await?;
    let custom = CustomLists::read(&connected.client, &snapshot.facts.config.pod_templates).await;
    report.serve(custom.kinds.iter().map(|(kind, _)| *kind));
    let eval_context = EvalContext::of(&snapshot);
    let requested: Vec<NamedWorkload> = workloads.keys().take(MOST).cloned().collect();
    let asking = requested.into_iter().map(|named| async {
        let now = current_state(&connected.client, &eval_context, &named.0, &named.1).await;
        (named, without(&lacks, now))
    });
    let answers: Vec<(NamedWorkload, CurrentState)> =
        stream::iter(asking).buffer_unordered(AT_ONCE).collect().await;
    for (named, now) in answers {
        workloads.insert(named, Some(now));
    }
    for row in report.rows.iter_mut().filter(|row| is_reported(row)) {
        let named = (row.namespace.clone(), row.workload.clone());
        let more = || CurrentState::unknown(format!("only {MOST} workloads are read"));
        row.current = Some(workloads.get(&named).cloned().flatten().unwrap_or_else(more));
    }
    Ok(())
}

/// The snapshot to evaluate objects against in this cluster, and the resources that could not be read.
/// Resources without read permission are reported, and treated as empty.
async fn snapshot(connected: &Connected, namespace: &str) -> anyhow::Result<(Snapshot, Vec<&'static str>)> {
    let excluded = excluded_by_default(namespace);
    let options = OfflineOptions {
        namespace,
        installation: INSTALLATION,
        excluded: &excluded,
        namespaces: &[],
        stated: None,
    };
    let cluster = offline::open(connected, options, &mut |_, _| ()).await?;
    for part in cluster.gaps() {
        warn_line(format_args!(
            "note: cannot read {}: {}; evaluated without it",
            part.resource, part.why
        ));
    }
    let is_lacking = |resource: &&str| cluster.gaps().any(|part| part.resource == *resource);
    let lacks = NEEDED.into_iter().filter(is_lacking).collect();
    // The log shows that the webhooks were called; whether they are called now is irrelevant here.
    let snapshot = Snapshot {
        registered: None,
        ..cluster.snapshot
    };
    Ok((snapshot, lacks))
}

/// The state of a workload if these resources could not be read: a result that depends on them is unknown.
fn without(lacks: &[&str], now: CurrentState) -> CurrentState {
    let rules = match &now {
        CurrentState::Fixed => None,
        CurrentState::Open { rules } => Some(list(rules, 4)),
        CurrentState::Unknown { .. } | CurrentState::Gone => return now,
    };
    if lacks.is_empty() {
        return now;
    }
    let found = rules.map_or_else(String::new, |rules| {
        format!("; without them it would be denied: {rules}")
    });
    CurrentState::unknown(format!(
        "this user cannot read {}{found}",
        list(lacks, NEEDED.len())
    ))
}

/// The current state of one workload.
async fn current_state(
    client: &Client,
    eval_context: &EvalContext<'_>,
    namespace: &str,
    workload: &str,
) -> CurrentState {
    let (kind, name) = workload.split_once(' ').unwrap_or_default();
    let is_named = |known: &Kind| known.as_str() == kind && known.has_pod() && !known.is_custom();
    let Some(mut kind) = Kind::ALL.into_iter().find(is_named) else {
        return CurrentState::unknown("Transom does not evaluate its kind");
    };
    if name.ends_with('*') {
        return CurrentState::unknown("its name is not in the log");
    }
    let mut name = name.to_owned();
    // A pod, its ReplicaSet, its Deployment.
    for _ in 0..3 {
        // It comes from a log, and becomes part of a URL path.
        if !is_subdomain(namespace) || !is_subdomain(&name) {
            return CurrentState::unknown("its name is not valid");
        }
        let Some(listing) = Listing::of_pod_carrier(kind) else {
            return CurrentState::unknown("Transom does not evaluate its kind");
        };
        let text = match listing.in_namespace(namespace).get(client, &name).await {
            Ok(text) => text,
            Err(ApiError::NotFound) => return CurrentState::Gone,
            Err(why) => return CurrentState::unknown(why.to_string()),
        };
        match look_at(eval_context, kind, &text) {
            Ok(Evaluated::Owner(owner_result)) => return from_result(&owner_result),
            Ok(Evaluated::Owned(of, owner)) => (kind, name) = (of, owner),
            Ok(Evaluated::Passed(SkipReason::Deleted | SkipReason::Finished)) => return CurrentState::Gone,
            Ok(Evaluated::Passed(SkipReason::Mirror | SkipReason::NoPod)) => {
                return CurrentState::unknown("admission does not evaluate it");
            }
            Err(why) => return CurrentState::unknown(why.to_string()),
        }
    }
    CurrentState::unknown("its chain of owners is too long")
}

fn from_result(owner_result: &OwnerResult) -> CurrentState {
    if let Some(why) = &owner_result.not_reviewed {
        return CurrentState::unknown(format!("admission is not called: {why}"));
    }
    let rules = owner_result.denied_by();
    if rules.is_empty() {
        return CurrentState::Fixed;
    }
    CurrentState::Open {
        rules: rules.into_iter().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_fixed_where_what_it_is_evaluated_by_cannot_be_read() {
        let lacks = ["windowspodpolicies", "nodes"];
        for now in [
            CurrentState::Fixed,
            CurrentState::Open {
                rules: vec!["host-pid".to_owned()],
            },
        ] {
            assert_eq!(without(&[], now.clone()), now);
            let CurrentState::Unknown { reason: why } = without(&lacks, now) else {
                panic!("it is treated as known");
            };
            assert!(
                why.starts_with("this user cannot read windowspodpolicies, nodes"),
                "{why}"
            );
        }
        assert_eq!(
            without(&lacks, CurrentState::Gone),
            CurrentState::Gone,
            "it is not there for any policy"
        );
    }
}
