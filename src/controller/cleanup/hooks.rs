//! What failed Jobs of the chart leave: Helm deletes the objects of a hook only where it succeeds, and some of them are
//! rights.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Api, Client};

use super::{OURS, Options, Report, delete_labelled};

/// The hooks of the chart; the objects of each are named after the installation and the hook.
pub const HOOKS: [&str; 3] = ["pre-upgrade", "pre-delete", "post-delete"];

/// Deletes what is left of every hook but the one that this runs as: that is for Helm, or the person who runs it.
pub(super) async fn delete_left_over(client: &Client, options: &Options, report: &mut Report) {
    let all = || client.clone();
    let namespace = &options.namespace;
    for hook in HOOKS {
        if options.hook.as_deref() == Some(hook) {
            continue;
        }
        let name = format!("{}-{hook}", options.name);
        delete_labelled(&Api::<Job>::namespaced(all(), namespace), &name, OURS, report).await;
        delete_labelled(
            &Api::<RoleBinding>::namespaced(all(), namespace),
            &name,
            OURS,
            report,
        )
        .await;
        delete_labelled(&Api::<Role>::namespaced(all(), namespace), &name, OURS, report).await;
        delete_labelled(&Api::<ClusterRoleBinding>::all(all()), &name, OURS, report).await;
        delete_labelled(&Api::<ClusterRole>::all(all()), &name, OURS, report).await;
        delete_labelled(
            &Api::<ServiceAccount>::namespaced(all(), namespace),
            &name,
            OURS,
            report,
        )
        .await;
    }
}
