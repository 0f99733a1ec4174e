//! The relevant fields that a pod has, as a bit set: a rule is called only if one of the fields that it needs is set.

use super::node::{ARCH_LABEL, BETA_ARCH_LABEL, BETA_OS_LABEL, OS_LABEL};
use super::object::Template;
use super::os_selectors::{is_build_label, is_os_label};
use super::pod::{
    Container, DEFAULT_MODE, FileSource, NodeSelectorTerm, PodSpec, SecurityContext, Volume, WindowsOptions,
};

/// A set of fields of a pod. It contains the fields that are set. A field that is `null`, empty or a default is not
/// included, unless a rule reports it anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldSet(u128);

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The bits, in the order of declaration.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Bit {
            $($name,)*
        }

        impl FieldSet {
            $($(#[$doc])* pub const $name: FieldSet = FieldSet(1 << Bit::$name as u32);)*
        }
    };
}

fields! {
    /// No field: every object has it. For rules about missing fields, or without a field.
    ALWAYS,
    // The pod's metadata.
    /// The label `kubernetes.io/os` of the pod itself.
    OS_LABEL,
    /// `annotations`
    ANNOTATIONS,
    // Scheduling.
    /// `os`
    OS,
    /// A label of the operating system, in the nodeSelector or the required node affinity.
    SELECTS_OS,
    /// A label of the Windows build there.
    SELECTS_BUILD,
    /// A label of the architecture there.
    SELECTS_ARCH,
    /// A deprecated label there, or in the preferred node affinity.
    SELECTS_BETA,
    /// `runtimeClassName`
    RUNTIME_CLASS,
    // The pod as a whole.
    /// `hostNetwork: true`
    HOST_NETWORK,
    /// `hostPID: true`
    HOST_PID,
    /// `hostIPC: true`
    HOST_IPC,
    /// `hostUsers`
    HOST_USERS,
    /// `shareProcessNamespace`
    SHARE_PROCESS_NAMESPACE,
    /// `dnsPolicy: ClusterFirstWithHostNet`
    DNS_WITH_HOST_NETWORK,
    /// `dnsConfig`
    DNS_CONFIG,
    /// The pod's own `resources`.
    POD_RESOURCES,
    /// `resourceClaims` of the pod, or `claims` of a container.
    RESOURCE_CLAIMS,
    /// `tolerations` with the operator `Gt` or `Lt`.
    COMPARED_TOLERATIONS,
    /// `terminationGracePeriodSeconds`
    GRACE_PERIOD,
    // Security contexts, of the pod or of a container.
    /// `appArmorProfile`
    APP_ARMOR_PROFILE,
    /// `seLinuxOptions`
    SE_LINUX_OPTIONS,
    /// `seccompProfile`
    SECCOMP_PROFILE,
    /// `runAsUser`
    RUN_AS_USER,
    /// `runAsGroup`
    RUN_AS_GROUP,
    /// `supplementalGroups`
    SUPPLEMENTAL_GROUPS,
    /// `supplementalGroupsPolicy`
    SUPPLEMENTAL_GROUPS_POLICY,
    /// `seLinuxChangePolicy`
    SE_LINUX_CHANGE_POLICY,
    /// `fsGroup`
    FS_GROUP,
    /// `fsGroupChangePolicy`
    FS_GROUP_CHANGE_POLICY,
    /// `sysctls`
    SYSCTLS,
    /// `capabilities`
    CAPABILITIES,
    /// `readOnlyRootFilesystem`
    READ_ONLY_ROOT_FILESYSTEM,
    /// `privileged`
    PRIVILEGED,
    /// `allowPrivilegeEscalation`
    ALLOW_PRIVILEGE_ESCALATION,
    /// `procMount`
    PROC_MOUNT,
    /// `runAsNonRoot: true`
    RUN_AS_NON_ROOT,
    /// `windowsOptions`
    WINDOWS_OPTIONS,
    /// `windowsOptions.hostProcess: true`
    HOST_PROCESS,
    /// `windowsOptions.runAsUserName`
    RUN_AS_USER_NAME,
    /// `windowsOptions.gmsaCredentialSpecName`
    GMSA_NAME,
    /// `windowsOptions.gmsaCredentialSpec`
    GMSA_SPEC,
    // Containers.
    /// More than one container, in any list.
    SEVERAL_CONTAINERS,
    /// `image`
    IMAGE,
    /// `command`
    COMMAND,
    /// A command (`exec`) of a probe or of a hook.
    EXEC,
    /// `workingDir`
    WORKING_DIR,
    /// `env`
    ENV,
    /// `ports`
    PORTS,
    /// `resources.limits`
    LIMITS,
    /// `resources.requests`
    REQUESTS,
    /// `lifecycle.stopSignal`
    STOP_SIGNAL,
    /// `terminationMessagePath`
    TERMINATION_MESSAGE_PATH,
    /// `volumeDevices`
    VOLUME_DEVICES,
    /// `volumeMounts`
    VOLUME_MOUNTS,
    /// More than one mount in a container.
    SEVERAL_MOUNTS,
    /// `subPath` or `subPathExpr` of a mount.
    SUB_PATH,
    /// `mountPropagation` of a mount.
    MOUNT_PROPAGATION,
    /// `recursiveReadOnly` of a mount.
    RECURSIVE_READ_ONLY,
    // Volumes.
    /// `emptyDir.medium`
    MEDIUM,
    /// `mode` of an emptyDir, or `bindMountOptions` of a mount.
    UNIX_VOLUME_PERMISSIONS,
    /// `hostPath`
    HOST_PATH,
    /// Sources that write files: `secret`, `configMap`, `projected`.
    FILES,
    /// Modes of such files, or of those of `downwardAPI`, that are not the default.
    FILE_MODES,
    /// `persistentVolumeClaim`, `ephemeral`, or a StatefulSet's `volumeClaimTemplates`.
    CLAIMS,
    /// `csi`
    CSI,
    /// `nfs`
    NFS,
    /// `image` of a volume.
    IMAGE_VOLUME,
    /// Sources of in-tree plugins, from `iscsi` to `flexVolume`.
    VOLUME_PLUGINS,
}

impl FieldSet {
    /// Every field: for an object without a pod.
    pub const ALL: FieldSet = FieldSet(u128::MAX);

    /// These and others.
    #[must_use]
    pub const fn or(self, others: FieldSet) -> FieldSet {
        FieldSet(self.0 | others.0)
    }

    /// Whether any of these is among the others.
    pub const fn any_of(self, others: FieldSet) -> bool {
        self.0 & others.0 != 0
    }

    /// The fields that are set in a pod or in a pod template.
    pub fn of(template: &Template<'_>) -> FieldSet {
        let mut fields = FieldSet::ALWAYS;
        fields.note(FieldSet::OS_LABEL, template.meta.labels.get(OS_LABEL).is_some());
        fields.note(FieldSet::ANNOTATIONS, !template.meta.annotations.is_empty());
        fields.note(FieldSet::CLAIMS, !template.claim_templates.is_empty());
        fields.of_pod(&template.spec);
        for volume in &template.spec.volumes {
            fields.of_volume(volume);
        }
        let mut containers = 0_usize;
        for (_, _, container) in template.spec.visit_containers() {
            containers += 1;
            fields.of_container(container);
        }
        fields.note(FieldSet::SEVERAL_CONTAINERS, containers > 1);
        fields
    }

    fn note(&mut self, field: FieldSet, is_there: bool) {
        if is_there {
            self.0 |= field.0;
        }
    }

    fn of_pod(&mut self, pod: &PodSpec<'_>) {
        self.note(FieldSet::OS, pod.os.is_some());
        self.note(FieldSet::RUNTIME_CLASS, pod.runtime_class_name.is_some());
        self.note(FieldSet::HOST_NETWORK, pod.host_network.0);
        self.note(FieldSet::HOST_PID, pod.host_pid.0);
        self.note(FieldSet::HOST_IPC, pod.host_ipc.0);
        self.note(FieldSet::HOST_USERS, pod.host_users.is_some());
        self.note(FieldSet::SHARE_PROCESS_NAMESPACE, pod.share_process_namespace.0);
        self.note(
            FieldSet::DNS_WITH_HOST_NETWORK,
            pod.dns_policy.as_deref() == Some("ClusterFirstWithHostNet"),
        );
        self.note(FieldSet::DNS_CONFIG, pod.dns_config.is_some());
        self.note(FieldSet::POD_RESOURCES, pod.resources.0);
        self.note(FieldSet::RESOURCE_CLAIMS, !pod.resource_claims.is_empty());
        self.note(
            FieldSet::GRACE_PERIOD,
            pod.termination_grace_period_seconds.is_some(),
        );
        let compares = |operator: &str| matches!(operator, "Gt" | "Lt");
        let mut operators = pod
            .tolerations
            .iter()
            .filter_map(|toleration| toleration.operator.as_deref());
        self.note(FieldSet::COMPARED_TOLERATIONS, operators.any(compares));
        self.of_selection(pod);
        let Some(context) = &pod.security_context else {
            return;
        };
        self.note(FieldSet::APP_ARMOR_PROFILE, context.app_armor_profile.0);
        self.note(FieldSet::SE_LINUX_OPTIONS, context.se_linux_options.0);
        self.note(FieldSet::SECCOMP_PROFILE, context.seccomp_profile.0);
        self.note(FieldSet::RUN_AS_USER, context.run_as_user.0);
        self.note(FieldSet::RUN_AS_GROUP, context.run_as_group.0);
        self.note(FieldSet::SUPPLEMENTAL_GROUPS, context.supplemental_groups.0);
        self.note(
            FieldSet::SUPPLEMENTAL_GROUPS_POLICY,
            context.supplemental_groups_policy.is_some(),
        );
        self.note(FieldSet::SE_LINUX_CHANGE_POLICY, context.se_linux_change_policy.0);
        self.note(FieldSet::FS_GROUP, context.fs_group.0);
        self.note(FieldSet::FS_GROUP_CHANGE_POLICY, context.fs_group_change_policy.0);
        self.note(FieldSet::SYSCTLS, !context.sysctls.is_empty());
        self.note(FieldSet::RUN_AS_NON_ROOT, context.run_as_non_root == Some(true));
        self.of_windows_options(context.windows_options.as_ref());
    }

    fn of_selection(&mut self, pod: &PodSpec<'_>) {
        let keys_of = |term: &'_ NodeSelectorTerm<'_>, each: &mut dyn FnMut(&str)| {
            term.match_expressions.iter().for_each(|e| each(&e.key));
        };
        let mut required = |key: &str| {
            self.note(FieldSet::SELECTS_OS, is_os_label(key));
            self.note(FieldSet::SELECTS_BUILD, is_build_label(key));
            self.note(
                FieldSet::SELECTS_ARCH,
                matches!(key, ARCH_LABEL | BETA_ARCH_LABEL),
            );
            self.note(
                FieldSet::SELECTS_BETA,
                matches!(key, BETA_OS_LABEL | BETA_ARCH_LABEL),
            );
        };
        for (key, _) in &pod.node_selector {
            required(key);
        }
        for term in pod.required_terms() {
            keys_of(term, &mut required);
        }
        let affinity = pod.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        for preferred in affinity.iter().flat_map(|affinity| &affinity.preferred) {
            keys_of(&preferred.preference, &mut |key| {
                self.note(
                    FieldSet::SELECTS_BETA,
                    matches!(key, BETA_OS_LABEL | BETA_ARCH_LABEL),
                );
            });
        }
    }

    fn of_container(&mut self, container: &Container<'_>) {
        self.note(FieldSet::IMAGE, container.image.is_some());
        self.note(FieldSet::COMMAND, !container.command.is_empty());
        self.note(FieldSet::WORKING_DIR, container.working_dir.is_some());
        self.note(FieldSet::ENV, !container.env.is_empty());
        self.note(FieldSet::PORTS, !container.ports.is_empty());
        self.note(FieldSet::VOLUME_DEVICES, !container.volume_devices.is_empty());
        self.note(
            FieldSet::TERMINATION_MESSAGE_PATH,
            container.termination_message_path.is_some(),
        );
        if let Some(resources) = &container.resources {
            self.note(FieldSet::LIMITS, !resources.limits.is_empty());
            self.note(FieldSet::REQUESTS, !resources.requests.is_empty());
            self.note(FieldSet::RESOURCE_CLAIMS, !resources.claims.is_empty());
        }
        let hooks = container.lifecycle.as_ref();
        let handlers = [
            container.startup_probe.as_ref(),
            container.liveness_probe.as_ref(),
            container.readiness_probe.as_ref(),
            hooks.and_then(|hooks| hooks.post_start.as_ref()),
            hooks.and_then(|hooks| hooks.pre_stop.as_ref()),
        ];
        let has_command = handlers.iter().flatten().any(|handler| handler.exec.is_some());
        self.note(FieldSet::EXEC, has_command);
        if let Some(lifecycle) = &container.lifecycle {
            self.note(FieldSet::STOP_SIGNAL, lifecycle.stop_signal.is_some());
        }
        self.note(FieldSet::SEVERAL_MOUNTS, container.volume_mounts.len() > 1);
        for mount in &container.volume_mounts {
            self.note(FieldSet::VOLUME_MOUNTS, true);
            self.note(
                FieldSet::SUB_PATH,
                mount.sub_path.is_some() || mount.sub_path_expr.is_some(),
            );
            self.note(FieldSet::MOUNT_PROPAGATION, mount.mount_propagation.is_some());
            self.note(FieldSet::UNIX_VOLUME_PERMISSIONS, mount.bind_mount_options.0);
            self.note(FieldSet::RECURSIVE_READ_ONLY, mount.recursive_read_only.is_some());
        }
        if let Some(context) = &container.security_context {
            self.of_security_context(context);
        }
    }

    fn of_security_context(&mut self, context: &SecurityContext<'_>) {
        self.note(FieldSet::APP_ARMOR_PROFILE, context.app_armor_profile.0);
        self.note(FieldSet::SE_LINUX_OPTIONS, context.se_linux_options.0);
        self.note(FieldSet::SECCOMP_PROFILE, context.seccomp_profile.0);
        self.note(FieldSet::RUN_AS_USER, context.run_as_user.0);
        self.note(FieldSet::RUN_AS_GROUP, context.run_as_group.0);
        self.note(FieldSet::CAPABILITIES, context.capabilities.0);
        self.note(
            FieldSet::READ_ONLY_ROOT_FILESYSTEM,
            context.read_only_root_filesystem.0,
        );
        self.note(FieldSet::PRIVILEGED, context.privileged.0);
        self.note(
            FieldSet::ALLOW_PRIVILEGE_ESCALATION,
            context.allow_privilege_escalation.0,
        );
        self.note(FieldSet::PROC_MOUNT, context.proc_mount.0);
        self.note(FieldSet::RUN_AS_NON_ROOT, context.run_as_non_root == Some(true));
        self.of_windows_options(context.windows_options.as_ref());
    }

    fn of_windows_options(&mut self, options: Option<&WindowsOptions<'_>>) {
        let Some(options) = options else { return };
        self.note(FieldSet::WINDOWS_OPTIONS, true);
        self.note(FieldSet::HOST_PROCESS, options.host_process == Some(true));
        self.note(FieldSet::RUN_AS_USER_NAME, options.run_as_user_name.is_some());
        self.note(FieldSet::GMSA_NAME, options.gmsa_credential_spec_name.is_some());
        self.note(FieldSet::GMSA_SPEC, options.gmsa_credential_spec.is_some());
    }

    fn of_volume(&mut self, volume: &Volume<'_>) {
        let medium = volume.empty_dir.as_ref().and_then(|dir| dir.medium.as_ref());
        self.note(FieldSet::MEDIUM, medium.is_some());
        let has_mode = volume.empty_dir.as_ref().is_some_and(|dir| dir.mode.0);
        self.note(FieldSet::UNIX_VOLUME_PERMISSIONS, has_mode);
        self.note(FieldSet::HOST_PATH, volume.host_path.is_some());
        self.note(
            FieldSet::FILES,
            volume.projected.is_some() || volume.config_map.is_some() || volume.secret.is_some(),
        );
        for files in [&volume.secret, &volume.config_map, &volume.downward_api] {
            self.of_files(files.as_ref());
        }
        if let Some(projected) = &volume.projected {
            self.note(FieldSet::FILE_MODES, is_mode(projected.default_mode));
            self.note(FieldSet::UNIX_VOLUME_PERMISSIONS, projected.default_user.0);
            for source in &projected.sources {
                let files = [
                    &source.service_account_token,
                    &source.cluster_trust_bundle,
                    &source.pod_certificate,
                ];
                let has_owner = files.into_iter().flatten().any(|file| file.user.0);
                self.note(FieldSet::UNIX_VOLUME_PERMISSIONS, has_owner);
                for files in [&source.secret, &source.config_map, &source.downward_api] {
                    self.of_files(files.as_ref());
                }
            }
        }
        self.note(
            FieldSet::CLAIMS,
            volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some(),
        );
        self.note(FieldSet::CSI, volume.csi.is_some());
        self.note(FieldSet::NFS, volume.nfs.0);
        self.note(FieldSet::IMAGE_VOLUME, volume.image.0);
        let plugins = [
            volume.iscsi,
            volume.fc,
            volume.rbd,
            volume.cephfs,
            volume.glusterfs,
            volume.cinder,
            volume.flocker,
            volume.quobyte,
            volume.scale_io,
            volume.storageos,
            volume.portworx_volume,
            volume.photon_persistent_disk,
            volume.git_repo,
            volume.flex_volume,
        ];
        self.note(FieldSet::VOLUME_PLUGINS, plugins.iter().any(|plugin| plugin.0));
    }

    fn of_files(&mut self, files: Option<&FileSource>) {
        let Some(files) = files else { return };
        let of_items = || files.items.iter().any(|item| item.mode.is_some());
        self.note(FieldSet::FILE_MODES, is_mode(files.default_mode) || of_items());
        let has_owner = files.default_user.0 || files.items.iter().any(|item| item.user.0);
        self.note(FieldSet::UNIX_VOLUME_PERMISSIONS, has_owner);
    }
}

/// Whether an author wrote the default mode.
fn is_mode(mode: Option<i64>) -> bool {
    mode.is_some_and(|mode| mode != DEFAULT_MODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::object::{Object, ReviewStage};
    use crate::model::workload::Kind;

    #[test]
    fn what_is_null_or_empty_is_not_there() {
        let fields = |spec: &str| {
            let json = format!(r#"{{"metadata": {{"labels": {{}}, "annotations": null}}, "spec": {spec}}}"#);
            FieldSet::of(
                Object::parse(Kind::Pod, &json, ReviewStage::Written)
                    .unwrap()
                    .template()
                    .unwrap(),
            )
        };
        for nothing in [
            "{}",
            r#"{"volumes": [{"downwardAPI": {"defaultMode": 420, "items": [{}]}, "name": "a"}], "dnsPolicy": "ClusterFirst"}"#,
            r#"{"nodeSelector": {}, "volumes": null, "hostPID": false, "hostUsers": null, "containers": []}"#,
            r#"{"securityContext": {"sysctls": [], "runAsNonRoot": false, "windowsOptions": null}}"#,
            r#"{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}"#,
        ] {
            assert_eq!(fields(nothing), FieldSet::ALWAYS, "{nothing}");
        }
        for (there, field) in [
            (r#"{"hostUsers": true}"#, FieldSet::HOST_USERS),
            (
                r#"{"initContainers": [{"securityContext": {"privileged": false}}]}"#,
                FieldSet::PRIVILEGED,
            ),
            (
                r#"{"ephemeralContainers": [{}], "containers": [{}]}"#,
                FieldSet::SEVERAL_CONTAINERS,
            ),
            (r#"{"volumes": [{"projected": {}}]}"#, FieldSet::FILES),
            (r#"{"volumes": [{"csi": {"driver": "d"}}]}"#, FieldSet::CSI),
            (
                r#"{"containers": [{"livenessProbe": {"exec": {"command": ["cat"]}}}]}"#,
                FieldSet::EXEC,
            ),
            (
                r#"{"containers": [{"lifecycle": {"preStop": {"exec": {"command": ["sleep"]}}}}]}"#,
                FieldSet::EXEC,
            ),
            (
                r#"{"containers": [{"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}, "readinessProbe": {"httpGet": {}}}]}"#,
                FieldSet::ALWAYS,
            ),
        ] {
            assert_eq!(fields(there), FieldSet::ALWAYS.or(field), "{there}");
        }
    }
}
