//! Deletes what failed hook Jobs of the chart leave behind: Helm deletes the objects of a hook only if it succeeds,
//! and some of them grant permissions.

use super::{ADMISSION, Cleanup, CleanupOptions, OURS, Target};

/// The hooks of the chart; the objects of each are named after the installation and the hook.
pub const HOOKS: [&str; 3] = ["pre-upgrade", "pre-delete", "post-delete"];

/// The API group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The name of the objects of `helm test`.
pub(super) fn test_name(options: &CleanupOptions) -> String {
    format!("{}-test", options.name)
}

impl Cleanup<'_> {
    /// Deletes the remains of every hook except the one that this process runs as, which Helm deletes.
    pub(super) async fn delete_left_by_hooks(&mut self) {
        let running = self.options.hook.as_deref();
        let own = Some(&*self.options.namespace);
        for hook in HOOKS.into_iter().filter(|hook| running != Some(hook)) {
            let kinds = [
                ("batch", "Job", own),
                (RBAC, "RoleBinding", own),
                (RBAC, "Role", own),
                (RBAC, "ClusterRoleBinding", None),
                (RBAC, "ClusterRole", None),
                ("", "ServiceAccount", own),
            ];
            let name = format!("{}-{hook}", self.options.name);
            self.delete_ours(&name, &kinds).await;
        }
    }

    /// Deletes the remains of a failed or interrupted `helm test`. The permission to create pods goes before the policy
    /// that limits it to dry runs.
    pub(super) async fn delete_left_by_test(&mut self) {
        let own = Some(&*self.options.namespace);
        let Some(tested) = self.options.test_namespace.as_deref() else {
            return;
        };
        let kinds = [
            ("batch", "Job", own),
            (RBAC, "RoleBinding", Some(tested)),
            (RBAC, "Role", Some(tested)),
            ("", "ServiceAccount", own),
            (ADMISSION, "ValidatingAdmissionPolicyBinding", None),
            (ADMISSION, "ValidatingAdmissionPolicy", None),
        ];
        self.delete_ours(&test_name(self.options), &kinds).await;
    }

    /// Deletes Transom's objects of this name, each of a group, a kind and perhaps a namespace, in this order.
    async fn delete_ours(&mut self, name: &str, kinds: &[(&str, &'static str, Option<&str>)]) {
        for &(group, kind, namespace) in kinds {
            let target = Target::new(self.client, (group, kind), namespace);
            self.delete_labelled(&target, name, OURS).await;
        }
    }
}
