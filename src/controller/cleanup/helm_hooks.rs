//! Deletes what failed hook Jobs of the chart leave behind: Helm deletes the objects of a hook only if it succeeds,
//! and some of them grant permissions.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

use super::{Cleanup, OURS};

/// The hooks of the chart; the objects of each are named after the installation and the hook.
pub const HOOKS: [&str; 3] = ["pre-upgrade", "pre-delete", "post-delete"];

impl Cleanup<'_> {
    /// Deletes the remains of every hook except the one that this process runs as, which Helm deletes.
    pub(super) async fn delete_left_by_hooks(&mut self) {
        let own = self.options.hook.as_deref();
        for hook in HOOKS.into_iter().filter(|hook| own != Some(hook)) {
            let name = format!("{}-{hook}", self.options.name);
            self.delete_labelled(&self.own::<Job>(), &name, OURS).await;
            self.delete_labelled(&self.own::<RoleBinding>(), &name, OURS)
                .await;
            self.delete_labelled(&self.own::<Role>(), &name, OURS).await;
            self.delete_labelled(&self.cluster::<ClusterRoleBinding>(), &name, OURS)
                .await;
            self.delete_labelled(&self.cluster::<ClusterRole>(), &name, OURS)
                .await;
            self.delete_labelled(&self.own::<ServiceAccount>(), &name, OURS)
                .await;
        }
    }
}
