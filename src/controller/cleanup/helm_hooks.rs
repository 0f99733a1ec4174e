//! Deletes what failed hook Jobs of the chart leave behind: Helm deletes the objects of a hook only if it succeeds,
//! and some of them grant permissions.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;

use super::{Cleanup, CleanupOptions, OURS};

/// The hooks of the chart; the objects of each are named after the installation and the hook.
pub const HOOKS: [&str; 3] = ["pre-upgrade", "pre-delete", "post-delete"];

/// The name of the objects of `helm test`.
pub(super) fn test_name(options: &CleanupOptions) -> String {
    format!("{}-test", options.name)
}

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

    /// Deletes the remains of a failed or interrupted `helm test`. The permission to create pods goes before the policy
    /// that limits it to dry runs.
    pub(super) async fn delete_left_by_test(&mut self) {
        let Some(namespace) = self.options.test_namespace.as_deref() else {
            return;
        };
        let name = test_name(self.options);
        self.delete_labelled(&self.own::<Job>(), &name, OURS).await;
        let bindings = Api::<RoleBinding>::namespaced(self.client.clone(), namespace);
        self.delete_labelled(&bindings, &name, OURS).await;
        let roles = Api::<Role>::namespaced(self.client.clone(), namespace);
        self.delete_labelled(&roles, &name, OURS).await;
        self.delete_labelled(&self.own::<ServiceAccount>(), &name, OURS)
            .await;
        let bindings = self.cluster::<ValidatingAdmissionPolicyBinding>();
        self.delete_labelled(&bindings, &name, OURS).await;
        let policies = self.cluster::<ValidatingAdmissionPolicy>();
        self.delete_labelled(&policies, &name, OURS).await;
    }
}
