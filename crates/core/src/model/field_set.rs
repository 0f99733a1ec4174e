//! The relevant fields that a pod has, as a bit set: a rule is called only if one of the fields that it needs is set.

use super::objects::object::Template;
use super::objects::pod::{
    Container, DEFAULT_MODE, FileSource, PodSecurityContext, PodSpec, Resources, SecurityContext, Volume,
    VolumeMount, WindowsOptions,
};
use crate::model::nodes::node::{ARCH_LABEL, BETA_ARCH_LABEL, BETA_OS_LABEL, OS_LABEL};
use crate::model::nodes::os_selectors::{is_build_label, is_os_label};

/// A set of fields of a pod. It contains the fields that are set. A field that is `null`, empty or a default is not
/// included, unless a rule reports it anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldSet(u128);

/// Declares fields: each with the condition under which a part of a pod sets it.
macro_rules! fields {
    ($(fn $of:ident($part:ident: $type:ty) {$($(#[$doc:meta])* $name:ident: $is_set:expr;)*})*) => {
        /// The bits, in the order of declaration.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Bit {
            $($($name,)*)*
        }

        impl FieldSet {
            $($($(#[$doc])* pub const $name: FieldSet = FieldSet(1 << Bit::$name as u32);)*)*

            $(fn $of(&mut self, $part: $type) {
                $(self.note(FieldSet::$name, $is_set);)*
            })*
        }
    };
}

fields! {
    fn of_template(template: &Template<'_>) {
        /// No field: every object has it. For rules about missing fields, or without a field.
        ALWAYS: true;
        /// The label `kubernetes.io/os` of the pod itself.
        OS_LABEL: template.meta.labels.get(OS_LABEL).is_some();
        /// `annotations`
        ANNOTATIONS: !template.meta.annotations.is_empty();
        /// More than one container, in any list.
        SEVERAL_CONTAINERS: template.spec.visit_containers().nth(1).is_some();
    }
    fn of_pod(pod: &PodSpec<'_>) {
        /// `os`
        OS: pod.os.is_some();
        /// `runtimeClassName`
        RUNTIME_CLASS: pod.runtime_class_name.is_some();
        /// `hostNetwork: true`
        HOST_NETWORK: pod.host_network.0;
        /// `hostPID: true`
        HOST_PID: pod.host_pid.0;
        /// `hostIPC: true`
        HOST_IPC: pod.host_ipc.0;
        /// `hostUsers`
        HOST_USERS: pod.host_users.is_some();
        /// `shareProcessNamespace`
        SHARE_PROCESS_NAMESPACE: pod.share_process_namespace.is_some();
        /// `dnsPolicy: ClusterFirstWithHostNet`
        DNS_WITH_HOST_NETWORK: pod.dns_policy.as_deref() == Some("ClusterFirstWithHostNet");
        /// `dnsConfig`
        DNS_CONFIG: pod.dns_config.is_some();
        /// The pod's own `resources`.
        POD_RESOURCES: pod.resources.is_some();
        /// `tolerations` with the operator `Gt` or `Lt`.
        COMPARED_TOLERATIONS: pod.tolerations.iter().any(|it| matches!(it.operator.as_deref(), Some("Gt" | "Lt")));
        /// `terminationGracePeriodSeconds`
        GRACE_PERIOD: pod.termination_grace_period_seconds.is_some();
    }
    fn of_selected_label(key: &str) {
        /// A label of the operating system, in the nodeSelector or the required node affinity.
        SELECTS_OS: is_os_label(key);
        /// A label of the Windows build there.
        SELECTS_BUILD: is_build_label(key);
        /// A label of the architecture there.
        SELECTS_ARCH: matches!(key, ARCH_LABEL | BETA_ARCH_LABEL);
    }
    fn of_label(key: &str) {
        /// A deprecated label there, or in the preferred node affinity.
        SELECTS_BETA: matches!(key, BETA_OS_LABEL | BETA_ARCH_LABEL);
    }
    fn of_pod_context(context: &PodSecurityContext<'_>) {
        /// `supplementalGroups`
        SUPPLEMENTAL_GROUPS: context.supplemental_groups.is_some();
        /// `supplementalGroupsPolicy`
        SUPPLEMENTAL_GROUPS_POLICY: context.supplemental_groups_policy.is_some();
        /// `seLinuxChangePolicy`
        SE_LINUX_CHANGE_POLICY: context.se_linux_change_policy.is_some();
        /// `fsGroup`
        FS_GROUP: context.fs_group.0;
        /// `fsGroupChangePolicy`
        FS_GROUP_CHANGE_POLICY: context.fs_group_change_policy.is_some();
        /// `sysctls`
        SYSCTLS: !context.sysctls.is_empty();
    }
    // Those of a container and, from `appArmorProfile` to `runAsNonRoot`, of the pod.
    fn of_security_context(context: &SecurityContext<'_>) {
        /// `appArmorProfile`
        APP_ARMOR_PROFILE: context.app_armor_profile.is_some();
        /// `seLinuxOptions`
        SE_LINUX_OPTIONS: context.se_linux_options.is_some();
        /// `seccompProfile`
        SECCOMP_PROFILE: context.seccomp_profile.is_some();
        /// `runAsUser`
        RUN_AS_USER: context.run_as_user.0;
        /// `runAsGroup`
        RUN_AS_GROUP: context.run_as_group.0;
        /// `runAsNonRoot: true`
        RUN_AS_NON_ROOT: context.run_as_non_root == Some(true);
        /// `capabilities`
        CAPABILITIES: context.capabilities.is_some();
        /// `readOnlyRootFilesystem`
        READ_ONLY_ROOT_FILESYSTEM: context.read_only_root_filesystem.is_some();
        /// `privileged`
        PRIVILEGED: context.privileged.is_some();
        /// `allowPrivilegeEscalation`
        ALLOW_PRIVILEGE_ESCALATION: context.allow_privilege_escalation.is_some();
        /// `procMount`
        PROC_MOUNT: context.proc_mount.is_some();
    }
    fn of_windows_options(options: &WindowsOptions<'_>) {
        /// `windowsOptions`
        WINDOWS_OPTIONS: true;
        /// `windowsOptions.hostProcess: true`
        HOST_PROCESS: options.host_process == Some(true);
        /// `windowsOptions.runAsUserName`
        RUN_AS_USER_NAME: options.run_as_user_name.is_some();
        /// `windowsOptions.gmsaCredentialSpecName`
        GMSA_NAME: options.gmsa_credential_spec_name.is_some();
        /// `windowsOptions.gmsaCredentialSpec`
        GMSA_SPEC: options.gmsa_credential_spec.is_some();
    }
    fn of_container(container: &Container<'_>) {
        /// `image`
        IMAGE: container.image.is_some();
        /// `command`
        COMMAND: !container.command.is_empty();
        /// `args`
        ARGS: !container.args.is_empty();
        /// A command (`exec`) of a probe or of a hook.
        EXEC: has_exec(container);
        /// `workingDir`
        WORKING_DIR: container.working_dir.is_some();
        /// `env`
        ENV: !container.env.is_empty();
        /// `ports`
        PORTS: !container.ports.is_empty();
        /// `lifecycle.stopSignal`
        STOP_SIGNAL: container.lifecycle.stop_signal.is_some();
        /// `terminationMessagePath`
        TERMINATION_MESSAGE_PATH: container.termination_message_path.is_some();
        /// `volumeDevices`
        VOLUME_DEVICES: !container.volume_devices.is_empty();
        /// `volumeMounts`
        VOLUME_MOUNTS: !container.volume_mounts.is_empty();
        /// More than one mount in a container.
        SEVERAL_MOUNTS: container.volume_mounts.len() > 1;
    }
    fn of_resources(resources: &Resources<'_>) {
        /// `resources.limits`
        LIMITS: !resources.limits.is_empty();
        /// `resources.requests`
        REQUESTS: !resources.requests.is_empty();
        /// `claims` of a container, or `resourceClaims` of the pod.
        RESOURCE_CLAIMS: !resources.claims.is_empty();
    }
    fn of_mount(mount: &VolumeMount<'_>) {
        /// `subPath` or `subPathExpr` of a mount.
        SUB_PATH: mount.sub_path.is_some() || mount.sub_path_expr.is_some();
        /// `mountPropagation` of a mount.
        MOUNT_PROPAGATION: mount.mount_propagation.is_some();
        /// `recursiveReadOnly` of a mount.
        RECURSIVE_READ_ONLY: mount.recursive_read_only.is_some();
    }
    fn of_volume(volume: &Volume<'_>) {
        /// `emptyDir.medium`
        MEDIUM: volume.empty_dir.as_ref().is_some_and(|dir| dir.medium.is_some());
        /// `hostPath`
        HOST_PATH: volume.host_path.is_some();
        /// Sources that write files: `secret`, `configMap`, `projected`.
        FILES: volume.projected.is_some() || volume.config_map.is_some() || volume.secret.is_some();
        /// `persistentVolumeClaim`, `ephemeral`, or a StatefulSet's `volumeClaimTemplates`.
        CLAIMS: volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        /// `csi`
        CSI: volume.csi.is_some();
        /// `nfs`
        NFS: volume.nfs.0;
        /// `image` of a volume.
        IMAGE_VOLUME: volume.image.0;
        /// Sources of in-tree plugins, from `iscsi` to `flexVolume`.
        VOLUME_PLUGINS: has_plugin(volume);
    }
    fn of_files(files: &FileSource) {
        /// Modes of files that are not the default.
        FILE_MODES: is_mode(files.default_mode) || files.items.iter().any(|item| item.mode.is_some());
        /// An owner of files, `mode` of an emptyDir, or `bindMountOptions` of a mount.
        UNIX_VOLUME_PERMISSIONS: files.default_user.0 || files.items.iter().any(|item| item.user.0);
    }
}

impl FieldSet {
    /// Every field: for an object without a pod.
    pub const ALL: FieldSet = FieldSet(u128::MAX);

    /// The union of both sets.
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
        let (mut fields, pod) = (FieldSet(0), &template.spec);
        fields.of_template(template);
        fields.note(FieldSet::CLAIMS, !template.claim_templates.is_empty());
        fields.of_pod(pod);
        fields.note(FieldSet::RESOURCE_CLAIMS, !pod.resource_claims.is_empty());
        fields.of_selection(pod);
        let context = &pod.security_context;
        fields.of_pod_context(context);
        for (field, is_set) in [
            (FieldSet::APP_ARMOR_PROFILE, context.app_armor_profile.is_some()),
            (FieldSet::SE_LINUX_OPTIONS, context.se_linux_options.is_some()),
            (FieldSet::SECCOMP_PROFILE, context.seccomp_profile.is_some()),
            (FieldSet::RUN_AS_USER, context.run_as_user.0),
            (FieldSet::RUN_AS_GROUP, context.run_as_group.0),
            (FieldSet::RUN_AS_NON_ROOT, context.run_as_non_root == Some(true)),
        ] {
            fields.note(field, is_set);
        }
        let options = pod.windows_options().into_iter();
        options.for_each(|options| fields.of_windows_options(options));
        pod.volumes.iter().for_each(|volume| fields.of_sources(volume));
        for (_, _, container) in pod.visit_containers() {
            fields.of_container(container);
            container
                .resources
                .iter()
                .for_each(|resources| fields.of_resources(resources));
            for mount in &container.volume_mounts {
                fields.of_mount(mount);
                fields.note(FieldSet::UNIX_VOLUME_PERMISSIONS, mount.bind_mount_options.0);
            }
            fields.of_security_context(&container.security_context);
            let options = container.windows_options().into_iter();
            options.for_each(|options| fields.of_windows_options(options));
        }
        fields
    }

    fn note(&mut self, field: FieldSet, is_there: bool) {
        if is_there {
            self.0 |= field.0;
        }
    }

    fn of_selection(&mut self, pod: &PodSpec<'_>) {
        let expressions = pod
            .required_terms()
            .iter()
            .flat_map(|term| &term.match_expressions);
        let selector = pod.node_selector.iter().map(|(key, _)| key);
        for key in selector.chain(expressions.map(|expression| &expression.key)) {
            self.of_selected_label(key);
            self.of_label(key);
        }
        let affinity = pod.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        for preferred in affinity.iter().flat_map(|affinity| &affinity.preferred) {
            let expressions = preferred.preference.match_expressions.iter();
            expressions.for_each(|expression| self.of_label(&expression.key));
        }
    }

    /// A volume, with the files of its sources.
    fn of_sources(&mut self, volume: &Volume<'_>) {
        self.of_volume(volume);
        let has_mode = volume.empty_dir.as_ref().is_some_and(|dir| dir.mode.0);
        self.note(FieldSet::UNIX_VOLUME_PERMISSIONS, has_mode);
        let files = [&volume.secret, &volume.config_map, &volume.downward_api];
        files.into_iter().flatten().for_each(|files| self.of_files(files));
        let Some(projected) = &volume.projected else {
            return;
        };
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
            let files = [&source.secret, &source.config_map, &source.downward_api];
            files.into_iter().flatten().for_each(|files| self.of_files(files));
        }
    }
}

fn has_exec(container: &Container<'_>) -> bool {
    let handlers = [
        &container.startup_probe,
        &container.liveness_probe,
        &container.readiness_probe,
        &container.lifecycle.post_start,
        &container.lifecycle.pre_stop,
    ];
    handlers
        .into_iter()
        .flatten()
        .any(|handler| handler.exec.is_some())
}

fn has_plugin(volume: &Volume<'_>) -> bool {
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
    plugins.iter().any(|plugin| plugin.0)
}

/// Whether an author wrote the default mode.
fn is_mode(mode: Option<i64>) -> bool {
    mode.is_some_and(|mode| mode != DEFAULT_MODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::objects::object::{Object, ReviewStage};
    use crate::model::objects::workload::Kind;

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
