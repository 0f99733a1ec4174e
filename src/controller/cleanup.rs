//! Taking Transom out of a cluster: its webhook configurations first, so that nothing waits for it any more; then
//! everything that it wrote. Works while it runs and when it is dead, and any number of times.

mod beside;
mod hooks;

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::hooks::HOOKS;
use super::node_policies::take_back::{Options as TakeBack, Report as TakenBack, take_back_everything};
use crate::cluster::errors::{Failure, answered};
use crate::cluster::lease::LEASE;
use crate::cluster::pools::SEEN_CONFIG_MAP;
use crate::registration::configuration_name;

/// How long a leader is waited for that does not stop.
const LEADER_STOPS: Duration = Duration::from_secs(60);

/// How long a lease must not have changed before no replica can be acting on it: one that drains may take it once more.
const STANDS_STILL: Duration = Duration::from_secs(LEASE.as_secs() + 5);

/// The label of everything that belongs to Transom's installation.
const OURS: &str = "app.kubernetes.io/name=transom";

/// The label of a Secret that the leader made.
const MADE_BY_LEADER: &str = "app.kubernetes.io/managed-by=transom";

/// What is to go.
#[derive(Clone, Debug)]
pub struct Options {
    /// Transom's namespace.
    pub namespace: String,
    /// The name of the installation: both webhook configurations are named after it.
    pub name: String,
    /// The Lease of the leader.
    pub lease: String,
    /// The Secret of a self-managed certificate.
    pub certificate_secret: String,
    /// Keep the webhook configurations.
    pub keep_webhooks: bool,
    /// What stays on nodes, and whether RuntimeClasses stay.
    pub take_back: TakeBack,
    /// Delete the CustomResourceDefinitions too, and with them every policy.
    pub crds: bool,
    /// The hook of the chart that this runs as, one of [`HOOKS`]: its own objects stay.
    pub hook: Option<String>,
}

/// What was done, and what could not be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What is gone now, one line each.
    pub done: Vec<String>,
    /// What stays because something still uses it, and what to do.
    pub kept: Vec<String>,
    /// What was refused, and why.
    pub failures: Vec<String>,
}

/// Takes everything out, in an order that never leaves an API server waiting for a webhook that is gone. Goes on where
/// something is refused. `say` tells the person who waits what is waited for.
pub async fn run(client: &Client, options: &Options, say: &dyn Fn(String)) -> Report {
    let mut report = Report::default();
    let configuration = configuration_name(&options.name);
    if let Some(other) = other_namespace(client, options, &configuration).await {
        report.failures.push(other);
        return report;
    }
    if !options.keep_webhooks {
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        delete(&api, &configuration, &mut report).await;
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        delete(&api, &configuration, &mut report).await;
    }
    match stop_controllers(client, options, &mut report, say).await {
        Leader::Gone => {}
        Leader::Unknown(why) => report.failures.push(why),
        // It would make everything again that is taken away under it.
        Leader::Acts(why) => {
            report.failures.push(why);
            return report;
        }
    }
    let others = match beside::others(client, &configuration).await {
        Ok(others) => others,
        Err(why) => {
            report.failures.push(why);
            Vec::new()
        }
    };
    if others.is_empty() {
        take_back(client, options, &mut report).await;
    } else {
        let what = "the labels and taints of nodes, and RuntimeClasses";
        report.kept.push(beside::kept(&others, what));
    }
    delete_in_namespace(client, options, &others, &mut report).await;
    hooks::delete_left_over(client, options, &mut report).await;
    if options.crds && !others.is_empty() {
        let what = "the CustomResourceDefinitions and the policies";
        report.kept.push(beside::kept(&others, what));
    } else if options.crds {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for name in [
            "windowspodpolicies.transom.dev",
            "windowsnodepolicies.transom.dev",
        ] {
            delete(&api, name, &mut report).await;
        }
    }
    report
}

/// Takes back what the controllers put on nodes, and their RuntimeClasses.
async fn take_back(client: &Client, options: &Options, report: &mut Report) {
    let TakenBack {
        nodes,
        runtime_classes,
        kept,
        failures,
    } = take_back_everything(client, options.take_back).await;
    report.done.extend(
        nodes
            .into_iter()
            .map(|name| format!("Node {name}: what was Transom's is taken back")),
    );
    report.done.extend(
        runtime_classes
            .into_iter()
            .map(|name| format!("RuntimeClass {name} deleted")),
    );
    report.kept.extend(kept);
    report.failures.extend(failures);
}

/// Deletes what the controllers wrote into Transom's own namespace.
async fn delete_in_namespace(
    client: &Client,
    options: &Options,
    others: &[beside::Installation],
    report: &mut Report,
) {
    let namespace = &options.namespace;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    delete(&secrets, &options.certificate_secret, report).await;
    // The one of before, where the certificate has come from somewhere else since: the key of a CA is in it.
    let by_default = format!("{}-certificates", options.name);
    if by_default != options.certificate_secret {
        delete_labelled(&secrets, &by_default, MADE_BY_LEADER, report).await;
    }
    // There is one in a namespace, whatever the installations in it are called.
    if !others.iter().any(|other| other.is_in(namespace)) {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        delete(&api, SEEN_CONFIG_MAP, report).await;
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    delete(&leases, &options.lease, report).await;
}

async fn delete<K>(api: &Api<K>, name: &str, report: &mut Report)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let what = format!("{} {name}", K::kind(&()));
    match answered(api.delete(name, &DeleteParams::default())).await {
        Ok(_) => report.done.push(format!("{what} deleted")),
        Err(Failure::Gone) => {}
        Err(why) => report.failures.push(format!("{what}: {why}")),
    }
}

/// Deletes an object only where it carries this label (`key=value`): another one of that name is not Transom's.
async fn delete_labelled<K>(api: &Api<K>, name: &str, label: &str, report: &mut Report)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let what = format!("{} {name}", K::kind(&()));
    let found = match answered(api.get_metadata(name)).await {
        Ok(found) => found.metadata,
        Err(Failure::Gone) => return,
        Err(why) => return report.failures.push(format!("{what}: {why}")),
    };
    let labels = found.labels.unwrap_or_default();
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    if labels.get(key).is_none_or(|is| is != value) {
        return;
    }
    let seen = Preconditions {
        uid: found.uid,
        ..Preconditions::default()
    };
    // In the background: a Job takes its pods with it.
    let params = DeleteParams::background().preconditions(seen);
    match answered(api.delete(name, &params)).await {
        Ok(_) => report.done.push(format!("{what} deleted")),
        Err(Failure::Gone) => {}
        Err(why) => report.failures.push(format!("{what}: {why}")),
    }
}

/// Scales Transom to nothing and waits until no leader acts any more: it would write everything again.
async fn stop_controllers(
    client: &Client,
    options: &Options,
    report: &mut Report,
    say: &dyn Fn(String),
) -> Leader {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &options.namespace);
    let name = &options.name;
    match answered(api.get(name)).await {
        Ok(deployment) if deployment.spec.replicas != Some(0) => {
            let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
            match answered(api.patch_scale(name, &PatchParams::default(), &none)).await {
                Ok(_) => report.done.push(format!("Deployment {name} scaled to 0")),
                Err(Failure::Gone) => {}
                Err(why) => {
                    let text = format!("Deployment {name} cannot be scaled to 0: {why}");
                    report.failures.push(text);
                }
            }
        }
        Ok(_) | Err(Failure::Gone) => {}
        Err(why) => {
            let text = format!("cannot read the Deployment {name} of Transom, to stop it: {why}");
            report.failures.push(text);
        }
    }
    leader_is_gone(client, options, say).await
}

/// Waits until no leader acts: the pods are gone and the lease is given up, or has stood still for as long as it lasts. A
/// replica that still drains may take a lease that another one gives up, so an empty lease alone proves nothing; pods on
/// a machine that is gone stay for ever, so pods alone do not either.
async fn leader_is_gone(client: &Client, options: &Options, say: &dyn Fn(String)) -> Leader {
    let api: Api<Lease> = Api::namespaced(client.clone(), &options.namespace);
    let started = Instant::now();
    let mut seen: Option<(String, Instant)> = None;
    let mut leader = String::new();
    while started.elapsed() < LEADER_STOPS {
        let lease = match answered(api.get(&options.lease)).await {
            Ok(lease) => lease,
            Err(Failure::Gone) => return Leader::Gone,
            Err(why) => {
                return Leader::Unknown(format!("cannot see whether a leader still acts: {why}"));
            }
        };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let holder = lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default();
        if holder.is_empty() && !has_pods(client, options).await {
            return Leader::Gone;
        }
        if !holder.is_empty() && holder != leader {
            say(format!("waiting for the leader {holder} to stop"));
            leader = holder;
        }
        match &seen {
            Some((last, since)) if *last == version => {
                if since.elapsed() > STANDS_STILL {
                    return Leader::Gone;
                }
            }
            _ => seen = Some((version, Instant::now())),
        }
        sleep(Duration::from_secs(1)).await;
    }
    Leader::Acts(format!(
        "{leader} still renews the Lease {}/{} and would make everything again, so nothing but the webhook configurations \
         was deleted: stop that process (a Deployment: kubectl -n {} scale deployment {} --replicas 0; elsewhere: end its \
         transom serve), then run this again",
        options.namespace, options.lease, options.namespace, options.name
    ))
}

/// Whether a replica may still act as the leader.
enum Leader {
    Gone,
    /// One does; which, and what to do.
    Acts(String),
    /// That cannot be seen; why.
    Unknown(String),
}

/// What is wrong where the installation of this name is registered for a Service in another namespace: its leader would
/// not be found in this one.
async fn other_namespace(client: &Client, options: &Options, configuration: &str) -> Option<String> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = answered(api.get(configuration)).await.ok()?;
    let mut services =
        (found.webhooks.iter().flatten()).filter_map(|webhook| webhook.client_config.service.as_ref());
    let namespace = services.next()?.namespace.clone();
    (namespace != options.namespace).then(|| {
        format!(
            "{configuration} belongs to Transom in the namespace {namespace}, not {}: run this with --namespace {namespace}",
            options.namespace
        )
    })
}

/// Whether pods of the Deployment are left, those that are ending too; where that cannot be known, yes.
async fn has_pods(client: &Client, options: &Options) -> bool {
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), &options.namespace);
    let list = match answered(api.list(&ListParams::default().labels(OURS))).await {
        Ok(list) => list,
        Err(Failure::Gone) => return false,
        Err(_) => return true,
    };
    let prefix = format!("{}-", options.name);
    list.items.iter().any(|pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        let mut sets = owners.filter(|owner| owner.kind == "ReplicaSet");
        sets.any(|set| set.name.starts_with(&prefix))
    })
}
