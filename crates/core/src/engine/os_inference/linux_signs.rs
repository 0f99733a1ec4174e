//! Fields that identify a Linux pod although no selector does: they silence the tag of an arbitrary image.

use crate::model::objects::object::Object;
use crate::model::objects::pod::{Container, PodSpec, Volume, VolumeMount};

/// The device resources of KubeVirt: `devices.kubevirt.io/kvm`, `…/tun`, `…/vhost-net`.
const KUBEVIRT_DEVICES: &str = "devices.kubevirt.io/";
/// The API group and the kind of the owner of a virt-launcher pod.
const KUBEVIRT_OWNER: (&str, &str) = ("kubevirt.io/", "VirtualMachineInstance");

/// The name of a field, and whether a pod has it.
type LinuxField = (&'static str, fn(&PodSpec<'_>) -> bool);

/// Fields that Windows does not support and that authors of Windows pods rarely write.
///
/// Charts and policies write other unsupported fields into pods of either system, so those are not listed here:
/// `runAsUser`, `runAsGroup`, `fsGroup`, `seccompProfile`, `capabilities`, `allowPrivilegeEscalation`,
/// `readOnlyRootFilesystem`, `privileged` (defaults of charts, and the restricted Pod Security profile),
/// `seLinuxOptions` (OpenShift's security context constraints write it before any webhook is called), and
/// `emptyDir.medium: Memory`.
static FIELDS: &[LinuxField] = &[
    ("hostPID", |pod| pod.host_pid.0),
    ("hostIPC", |pod| pod.host_ipc.0),
    ("securityContext.sysctls", |pod| {
        !pod.security_context.sysctls.is_empty()
    }),
    ("appArmorProfile", |pod| {
        pod.security_context.app_armor_profile.is_some()
            || any(pod, |c| c.security_context.app_armor_profile.is_some())
    }),
    ("securityContext.procMount", |pod| {
        any(pod, |c| c.security_context.proc_mount.is_some())
    }),
    ("resources hugepages-*", |pod| {
        any(pod, |c| has_resource(c, "hugepages-"))
    }),
    ("volumeDevices", |pod| any(pod, |c| !c.volume_devices.is_empty())),
    ("volumeMounts.mountPropagation", |pod| {
        let of = |mount: &VolumeMount<'_>| mount.mount_propagation.as_deref().is_some_and(|p| p != "None");
        any(pod, |c| c.volume_mounts.iter().any(of))
    }),
    ("volumes.emptyDir.medium HugePages*", |pod| {
        let of_volume = |volume: &Volume<'_>| {
            let medium = volume.empty_dir.as_ref().and_then(|dir| dir.medium.as_deref());
            medium.is_some_and(|medium| medium.starts_with("HugePages"))
        };
        pod.volumes.iter().any(of_volume)
    }),
    (
        "volumes.hostPath of a device, or below /dev, /proc or /sys",
        |pod| {
            let mut paths = pod.volumes.iter().filter_map(|volume| volume.host_path.as_ref());
            paths.any(|host| {
                let is_device = matches!(host.r#type.as_deref(), Some("BlockDevice" | "CharDevice"));
                is_device
                    || ["/dev", "/proc", "/sys"]
                        .iter()
                        .any(|root| is_at_or_below(&host.path, root))
            })
        },
    ),
];

/// Whether KubeVirt created the pod: it runs a virtual machine on Linux, even if its disks have Windows names.
pub(super) fn is_of_kubevirt(subject: &Object<'_>, pod: &PodSpec<'_>) -> bool {
    let (group, kind) = KUBEVIRT_OWNER;
    let mut owners = subject.meta.owner_references.iter();
    owners.any(|owner| &*owner.kind == kind && owner.api_version.starts_with(group))
        || any(pod, |container| has_resource(container, KUBEVIRT_DEVICES))
}

/// Whether the pod has a field that only Linux has and that authors of Windows pods rarely write.
pub(super) fn has_linux_field(pod: &PodSpec<'_>) -> bool {
    FIELDS.iter().any(|(_, has)| has(pod))
}

fn any(pod: &PodSpec<'_>, test: impl Fn(&Container<'_>) -> bool) -> bool {
    pod.visit_containers().any(|(_, _, container)| test(container))
}

/// Whether a container requests or limits a resource whose name starts with this text.
fn has_resource(container: &Container<'_>, start: &str) -> bool {
    container.resources.as_ref().is_some_and(|resources| {
        let mut both = resources.limits.iter().chain(&resources.requests);
        both.any(|(name, _)| name.starts_with(start))
    })
}

fn is_at_or_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::objects::object::ReviewStage;
    use crate::model::objects::workload::Kind;

    /// Which of the fields a pod has.
    fn fields(spec: &str) -> Vec<&'static str> {
        let spec: PodSpec<'_> = serde_json::from_str(spec).unwrap();
        let found = FIELDS.iter().filter(|(_, has)| has(&spec));
        found.map(|(name, _)| *name).collect()
    }

    fn container(fields: &str) -> String {
        format!(r#"{{"containers": [{{"name": "a", {fields}}}]}}"#)
    }

    #[test]
    fn each_field_of_the_table_is_found() {
        let of_a_device = "volumes.hostPath of a device, or below /dev, /proc or /sys";
        let pod = |fields: &str| format!("{{{fields}}}");
        let table = [
            (pod(r#""hostPID": true"#), "hostPID"),
            (pod(r#""hostIPC": true"#), "hostIPC"),
            (
                pod(r#""securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}"#),
                "securityContext.sysctls",
            ),
            (
                pod(r#""securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}"#),
                "appArmorProfile",
            ),
            (
                container(r#""securityContext": {"appArmorProfile": {"type": "Unconfined"}}"#),
                "appArmorProfile",
            ),
            (
                container(r#""securityContext": {"procMount": "Default"}"#),
                "securityContext.procMount",
            ),
            (
                container(r#""resources": {"limits": {"hugepages-2Mi": "2Gi"}}"#),
                "resources hugepages-*",
            ),
            (
                container(r#""volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}]"#),
                "volumeDevices",
            ),
            (
                container(
                    r#""volumeMounts": [{"name": "a", "mountPath": "/a", "mountPropagation": "Bidirectional"}]"#,
                ),
                "volumeMounts.mountPropagation",
            ),
            (
                pod(r#""volumes": [{"name": "a", "emptyDir": {"medium": "HugePages-2Mi"}}]"#),
                "volumes.emptyDir.medium HugePages*",
            ),
            (
                pod(r#""volumes": [{"name": "a", "hostPath": {"path": "/dev/kvm"}}]"#),
                of_a_device,
            ),
            (
                pod(r#""volumes": [{"name": "a", "hostPath": {"path": "/x", "type": "CharDevice"}}]"#),
                of_a_device,
            ),
        ];
        let mut untested: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        for (spec, name) in &table {
            assert_eq!(fields(spec), [*name], "{spec}");
            untested.retain(|other| other != name);
        }
        assert_eq!(untested, [""; 0]);
    }

    #[test]
    fn what_charts_write_for_either_system_is_no_sign() {
        for spec in [
            r#"{"hostPID": false, "hostNetwork": true, "securityContext": {"runAsUser": 107, "runAsGroup": 107, "fsGroup": 107,
                "runAsNonRoot": true, "seLinuxOptions": {"level": "s0:c1,c2"}, "seccompProfile": {"type": "RuntimeDefault"},
                "supplementalGroups": [1], "sysctls": []}}"#
                .to_owned(),
            container(
                r#""resources": {"limits": {"memory": "1Gi"}}, "securityContext": {"privileged": false, "capabilities":
                {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true}"#,
            ),
            container(r#""volumeMounts": [{"name": "a", "mountPath": "/a", "mountPropagation": "None"}]"#),
            r#"{"volumes": [{"name": "a", "hostPath": {"path": "/devices"}}, {"name": "b", "emptyDir": {"medium": "Memory"}},
                {"name": "c", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}}]}"#
                .to_owned(),
        ] {
            assert_eq!(fields(&spec), [""; 0], "{spec}");
        }
    }

    #[test]
    fn kubevirt_is_known_by_its_devices_and_by_the_owner() {
        let is = |meta: &str, spec: &str| {
            let pod = format!(r#"{{"metadata": {meta}, "spec": {spec}}}"#);
            let subject = Object::parse(Kind::Pod, &pod, ReviewStage::Written).unwrap();
            is_of_kubevirt(&subject, subject.pod().unwrap())
        };
        let owner = |version: &str, kind: &str| {
            format!(
                r#"{{"ownerReferences": [{{"apiVersion": "{version}", "kind": "{kind}", "name": "vm"}}]}}"#
            )
        };
        let plain = container(r#""image": "a""#);
        let device = container(r#""resources": {"limits": {"devices.kubevirt.io/kvm": "1"}}"#);
        assert!(is("{}", &device));
        assert!(is(&owner("kubevirt.io/v1", "VirtualMachineInstance"), &plain));
        assert!(!is(
            &owner("kubevirt.io.example.com/v1", "VirtualMachineInstance"),
            &plain
        ));
        assert!(!is(&owner("kubevirt.io/v1", "VirtualMachine"), &plain));
        assert!(!is("{}", &plain));
    }
}
