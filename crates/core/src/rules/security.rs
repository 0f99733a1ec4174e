//! Linux security context fields: those that the API server forbids on Windows pods and those that Windows ignores.

use super::asks_for_nothing::{AsksForNothing, Pods};
use super::context::PodCx;
use super::rule::{Check, Reporter, Required, Rule};
use crate::model::cluster::facts::PodSecurity;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::managed_fields::SCC_ANNOTATION;
use crate::model::objects::pod::{Capabilities, PodSecurityContext, Profile, SecurityContext};
use crate::model::syntax::json_types::{IsPresent, Map};
use crate::model::syntax::path::Path;
use crate::model::windows::os::Os;

/// The last part of the remedies for fields that the restricted Pod Security profile requires; a denial prints it once.
pub const POD_SECURITY: &str = "; with spec.os.name: windows, Pod Security does not require it";
/// The same where no pod is exempt.
const POD_SECURITY_FOR_ALL: &str =
    "; Pod Security's restricted profile requires it of every pod before v1.25: enforce a later version";

/// Rules TSM201 and up.
pub static RULES: &[&Rule] = &[
    &APP_ARMOR_PROFILE,
    &SELINUX_OPTIONS,
    &SECCOMP_PROFILE,
    &RUN_AS_USER,
    &RUN_AS_GROUP,
    &SUPPLEMENTAL_GROUPS,
    &SUPPLEMENTAL_GROUPS_POLICY,
    &SELINUX_CHANGE_POLICY,
    &FS_GROUP,
    &FS_GROUP_CHANGE_POLICY,
    &SYSCTLS,
    &CAPABILITIES,
    &READ_ONLY_ROOT_FILESYSTEM,
    &PRIVILEGED,
    &ALLOW_PRIVILEGE_ESCALATION,
    &PROC_MOUNT,
    &LINUX_SECURITY_ANNOTATION,
];

const INTRO: &str =
    "https://kubernetes.io/docs/concepts/windows/intro/#compatibility-v1-pod-spec-containers-securitycontext";
const POD_INTRO: &str =
    "https://kubernetes.io/docs/concepts/windows/intro/#compatibility-v1-pod-spec-securitycontext";
const SECURITY: &str = "https://kubernetes.io/docs/concepts/security/windows-security/";
const SOURCE: &str = "kubernetes: pkg/apis/core/validation/validation.go, validateWindows";
/// What the values of a field mean.
const TYPES: &str = "kubernetes: staging/src/k8s.io/api/core/v1/types.go";
/// What the kubelet passes on to a container: resources, user, credential spec and HostProcess, nothing else.
const KUBELET: &str =
    "kubernetes: pkg/kubelet/kuberuntime/kuberuntime_container_windows.go, generateWindowsContainerConfig";
const HOST_PROCESS: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/";

/// A value that requests nothing of any Windows pod.
const fn nothing(value: &'static str, because: &'static str, source: &'static str) -> AsksForNothing {
    AsksForNothing {
        value,
        pods: Pods::All,
        because,
        source,
    }
}

/// The severities of rules with such values.
const SEVERITIES: &str = "error; warning for a value that requests nothing";

/// Common to every field of this family: the API server forbids it, and Windows ignores it.
const FORBIDDEN: Rule = Rule {
    severity: Severity::Error,
    class: Class::Api,
    tolerable: true,
    removable: true,
    ..Rule::BASE
};

/// Reports a field of the pod's security context. `get`: its value, as in the rule's table.
fn of_pod(
    cx: &PodCx<'_>,
    out: &mut Reporter<'_>,
    field: &'static str,
    get: for<'c> fn(&'c PodSecurityContext<'_>) -> Option<&'c str>,
) {
    if let Some(value) = get(&cx.spec.security_context) {
        report(cx, out, cx.at(&["securityContext", field]), value);
    }
}

/// Reports a field of every container's security context.
fn of_containers(
    cx: &PodCx<'_>,
    out: &mut Reporter<'_>,
    field: &'static str,
    get: for<'c> fn(&'c SecurityContext<'_>) -> Option<&'c str>,
) {
    for container in cx.containers() {
        if let Some(value) = get(&container.security_context) {
            report(cx, out, container.at(&["securityContext", field]), value);
        }
    }
}

/// A value that is not in a table: every one requests something.
fn any(field: IsPresent) -> Option<&'static str> {
    field.0.then_some("")
}

fn boolean(field: Option<bool>) -> Option<&'static str> {
    field.map(|is_true| if is_true { "true" } else { "false" })
}

fn profile<'c>(field: Option<&'c Profile<'_>>) -> Option<&'c str> {
    field.map(|profile| profile.r#type.as_deref().unwrap_or_default())
}

fn labels(field: Option<&Map<'_>>) -> Option<&'static str> {
    let is_empty = |labels: &Map<'_>| labels.iter().all(|(_, label)| label.is_empty());
    field.map(|labels| if is_empty(labels) { "{}" } else { "" })
}

fn capabilities(field: Option<&Capabilities>) -> Option<&'static str> {
    field.map(|it| match (it.add.is_empty(), it.drop.is_empty()) {
        (true, true) => "{}",
        (true, false) => DROP,
        (false, _) => ADD,
    })
}

/// Capabilities that are only dropped.
const DROP: &str = "{drop: [ALL]}";

/// Capabilities that are added, whether or not others are dropped.
const ADD: &str = "{add: [SYS_ADMIN]}";

fn report(cx: &PodCx<'_>, out: &mut Reporter<'_>, path: Path, value: &str) {
    let finding = out.report_value(path, value).removable();
    if finding.rule.required_by_restricted {
        let is_windows = cx.spec.os_name() == Some(Os::Windows.label());
        finding.required(Required::UnlessWindows { is_windows });
        let remedy = finding.rule.remedy.strip_suffix(POD_SECURITY);
        let profile = cx.facts.pod_security(&cx.subject.namespace);
        if let (Some(remedy), PodSecurity::RestrictedForAll) = (remedy, profile) {
            finding.remedy(format!("{remedy}{POD_SECURITY_FOR_ALL}"));
        }
    }
}

static APP_ARMOR_PROFILE: Rule = Rule {
    id: "TSM201",
    name: "app-armor-profile",
    kubernetes: 30..=Rule::STILL,
    severities: SEVERITIES,
    asks_for_nothing: &[
        nothing(
            "RuntimeDefault",
            "Windows has no AppArmor, so its runtime has no default profile",
            TYPES,
        ),
        nothing(
            "Unconfined",
            "Windows has no AppArmor, so every pod is unconfined",
            TYPES,
        ),
    ],
    loses: "the confinement by its own profile",
    summary: "Windows has no AppArmor",
    docs: "AppArmor is a Linux security module. The kubelet on Windows ignores the profile. With `spec.os.name: \
           windows`, the API server rejects it.",
    remedy: "remove it",
    see: &[SECURITY, SOURCE],
    bad: &[
        "securityContext: {appArmorProfile: {type: RuntimeDefault}}",
        "containers: [{name: app, image: app, securityContext: {appArmorProfile: {type: Unconfined}}}]",
        "os: null\nsecurityContext: {appArmorProfile: {type: Localhost, localhostProfile: app}}",
    ],
    good: &["securityContext: {appArmorProfile: null}"],
    needs: FieldSet::APP_ARMOR_PROFILE,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "appArmorProfile", |c| {
            profile(c.app_armor_profile.as_ref())
        });
        of_containers(cx, out, "appArmorProfile", |c| {
            profile(c.app_armor_profile.as_ref())
        });
    }),
    ..FORBIDDEN
};

static SELINUX_OPTIONS: Rule = Rule {
    id: "TSM202",
    name: "selinux-options",
    severities: SEVERITIES,
    asks_for_nothing: &[nothing(
        "{}",
        "Windows has no SELinux, and an empty object sets no label",
        TYPES,
    )],
    loses: "the SELinux label",
    summary: "Windows has no SELinux",
    docs: "SELinux labels have no meaning on Windows. With `spec.os.name: windows`, the API server rejects even an \
           empty object.",
    remedy: "remove it",
    see: &[POD_INTRO, SECURITY, SOURCE],
    bad: &[
        "securityContext: {seLinuxOptions: {level: 's0:c123,c456'}}",
        "containers: [{name: app, image: app, securityContext: {seLinuxOptions: {}}}]",
    ],
    good: &["securityContext: {}"],
    needs: FieldSet::SE_LINUX_OPTIONS,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "seLinuxOptions", |c| labels(c.se_linux_options.as_ref()));
        of_containers(cx, out, "seLinuxOptions", |c| labels(c.se_linux_options.as_ref()));
    }),
    ..FORBIDDEN
};

static SECCOMP_PROFILE: Rule = Rule {
    id: "TSM203",
    name: "seccomp-profile",
    required_by_restricted: true,
    severities: SEVERITIES,
    asks_for_nothing: &[
        nothing(
            "RuntimeDefault",
            "Windows has no seccomp, so its runtime has no default profile",
            TYPES,
        ),
        nothing(
            "Unconfined",
            "Windows has no seccomp, so every pod is unconfined",
            TYPES,
        ),
    ],
    loses: "the filter of its own profile",
    summary: "Windows has no seccomp",
    docs: "Seccomp filters Linux system calls. The restricted Pod Security profile requires it, but exempts pods with \
           `spec.os.name: windows`. On those pods the API server rejects it.",
    remedy: "remove it; with spec.os.name: windows, Pod Security does not require it",
    see: &[POD_INTRO, SECURITY, SOURCE],
    bad: &[
        "securityContext: {seccompProfile: {type: RuntimeDefault}}",
        "initContainers: [{name: init, image: app, securityContext: {seccompProfile: {type: RuntimeDefault}}}]",
    ],
    good: &["securityContext: {runAsNonRoot: true}"],
    needs: FieldSet::SECCOMP_PROFILE,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "seccompProfile", |c| profile(c.seccomp_profile.as_ref()));
        of_containers(cx, out, "seccompProfile", |c| profile(c.seccomp_profile.as_ref()));
    }),
    ..FORBIDDEN
};

/// Whether a kubelet of the cluster's release may hang at `chown` of the pod's service account token. That is from
/// 1.21, where every pod has a projected token, to 1.30, whose patch release is not known here. OpenShift's kubelets
/// have had their own fix since 4.8 (openshift/kubernetes#804), and the API server rejects a pod that says `windows`
/// earlier.
///
///  Source: kubernetes/kubernetes#102849 and #125040; the kubelet sets an owner only if all containers have one user.
fn stops_at_the_token(cx: &PodCx<'_>) -> bool {
    let has_scc = cx.facts.has_scc || cx.meta.annotations.get(SCC_ANNOTATION).is_some();
    let of_pod = cx.spec.security_context.run_as_user.0;
    let is_for_windows = cx.spec.os_name() == Some(Os::Windows.label());
    (21..=30).contains(&cx.facts.kubernetes)
        && !has_scc
        && !is_for_windows
        && (of_pod || (cx.containers()).all(|container| container.security_context.run_as_user.0))
}

/// User IDs, which Windows does not have. Texts use the rule as their example.
pub static RUN_AS_USER: Rule = Rule {
    id: "TSM204",
    name: "run-as-user",
    loses: "the user: without runAsUserName, the container runs as the user of its image",
    summary: "Windows has no user IDs",
    docs: "Windows identifies users by name, not by numeric IDs. A current kubelet logs the field and continues. The \
           container then runs as the user of its image, which is ContainerAdministrator on servercore images. \
           Kubelets from 1.21 until 1.29.12 and 1.30.8 do not ignore the field. If every container of the pod has a \
           `runAsUser` (its own or the pod's), they try to give the service account token to that user. That fails \
           (`chown ... not supported by windows`), and the pod stays in ContainerCreating. Fixed in 1.29.13, 1.30.9 \
           and 1.31.0. On a cluster of an affected release the pod hangs, so `ignoredFields: Warn` does not apply to \
           the finding; `Remove` does.",
    remedy: "use windowsOptions.runAsUserName",
    see: &[
        INTRO,
        POD_INTRO,
        SOURCE,
        "https://github.com/kubernetes/kubernetes/pull/125040",
        "https://kubernetes.io/docs/tasks/configure-pod-container/configure-runasusername/",
    ],
    bad: &[
        "securityContext: {runAsUser: 0}",
        "containers: [{name: app, image: app, securityContext: {runAsUser: 1000}}]",
        "ephemeralContainers: [{name: debugger, image: app, securityContext: {runAsUser: 0}}]",
    ],
    good: &["securityContext: {windowsOptions: {runAsUserName: ContainerUser}}"],
    needs: FieldSet::RUN_AS_USER,
    check: Check::Pod(|cx, out| {
        let first = out.reported();
        of_pod(cx, out, "runAsUser", |c| any(c.run_as_user));
        of_containers(cx, out, "runAsUser", |c| any(c.run_as_user));
        if stops_at_the_token(cx) {
            for finding in out.since(first) {
                finding
                    .class(Class::Run)
                    .message("Windows has no user IDs, and kubelets before 1.30.9 hang at the pod's service account token");
            }
        }
    }),
    ..FORBIDDEN
};

static RUN_AS_GROUP: Rule = Rule {
    id: "TSM205",
    name: "run-as-group",
    loses: "the primary group",
    summary: "Windows has no group IDs",
    docs: "A Windows process has no primary group ID that Kubernetes could set. Windows ignores the field.",
    remedy: "remove it",
    see: &[INTRO, POD_INTRO, SOURCE],
    bad: &[
        "securityContext: {runAsGroup: 3000}",
        "containers: [{name: app, image: app, securityContext: {runAsGroup: 0}}]",
    ],
    good: &["securityContext: {windowsOptions: {runAsUserName: ContainerUser}}"],
    needs: FieldSet::RUN_AS_GROUP,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "runAsGroup", |c| any(c.run_as_group));
        of_containers(cx, out, "runAsGroup", |c| any(c.run_as_group));
    }),
    ..FORBIDDEN
};

static SUPPLEMENTAL_GROUPS: Rule = Rule {
    id: "TSM206",
    name: "supplemental-groups",
    severities: SEVERITIES,
    asks_for_nothing: &[nothing("[]", "an empty list adds no group", TYPES)],
    loses: "the groups",
    summary: "Windows has no supplemental groups",
    docs: "The kubelet does not pass group IDs to a Windows sandbox. With `spec.os.name: windows`, the API server \
           rejects even an empty list in a manifest; a webhook cannot see an empty list.",
    remedy: "remove it",
    see: &[POD_INTRO, SOURCE],
    bad: &[
        "securityContext: {supplementalGroups: [4000]}",
        "securityContext: {supplementalGroups: []}",
    ],
    good: &["securityContext: {supplementalGroups: null}"],
    needs: FieldSet::SUPPLEMENTAL_GROUPS,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "supplementalGroups", |c| {
            c.supplemental_groups
                .as_ref()
                .map(|groups| if groups.is_empty() { "[]" } else { "" })
        });
    }),
    ..FORBIDDEN
};

static SUPPLEMENTAL_GROUPS_POLICY: Rule = Rule {
    id: "TSM207",
    name: "supplemental-groups-policy",
    kubernetes: 31..=Rule::STILL,
    severities: SEVERITIES,
    asks_for_nothing: &[nothing(
        "Merge",
        "the value Merge is the default, and Windows has no groups to merge",
        TYPES,
    )],
    loses: "its start: the kubelet rejects the pod",
    summary: "Windows has no supplemental groups",
    docs: "The field defines how the group memberships of the image are merged; Windows has none. With `Strict`, the \
           kubelet rejects the pod, because the runtime does not report the feature \
           (SupplementalGroupsPolicyNotSupported).",
    remedy: "remove it",
    see: &[SOURCE, "kubernetes: pkg/kubelet/lifecycle/predicate.go"],
    bad: &[
        "securityContext: {supplementalGroupsPolicy: Strict}",
        "securityContext: {supplementalGroupsPolicy: Merge}",
    ],
    good: &["securityContext: {supplementalGroupsPolicy: null}"],
    needs: FieldSet::SUPPLEMENTAL_GROUPS_POLICY,
    check: Check::Pod(|cx, out| {
        if let Some(policy) = cx.spec.security_context.supplemental_groups_policy.as_deref() {
            let path = cx.at(&["securityContext", "supplementalGroupsPolicy"]);
            let finding = out.report_value(path, policy).removable();
            if policy == "Strict" && cx.spec.os_name().is_none() {
                finding
                    .class(Class::Admit)
                    .message("the kubelet on Windows rejects a pod with supplementalGroupsPolicy Strict");
            }
        }
    }),
    ..FORBIDDEN
};

static SELINUX_CHANGE_POLICY: Rule = Rule {
    id: "TSM208",
    name: "selinux-change-policy",
    kubernetes: 32..=Rule::STILL,
    severities: SEVERITIES,
    asks_for_nothing: &[
        nothing(
            "MountOption",
            "seLinuxChangePolicy has no effect on nodes without SELinux",
            TYPES,
        ),
        nothing(
            "Recursive",
            "seLinuxChangePolicy has no effect on nodes without SELinux",
            TYPES,
        ),
    ],
    summary: "Windows has no SELinux",
    docs: "The field defines how volumes are relabelled for SELinux. Windows has no SELinux.",
    remedy: "remove it",
    see: &[SOURCE],
    bad: &["securityContext: {seLinuxChangePolicy: MountOption}"],
    good: &["securityContext: {}"],
    needs: FieldSet::SE_LINUX_CHANGE_POLICY,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "seLinuxChangePolicy", |c| {
            c.se_linux_change_policy.as_deref()
        });
    }),
    ..FORBIDDEN
};

static FS_GROUP: Rule = Rule {
    id: "TSM209",
    name: "fs-group",
    loses: "the access of the group to its volumes",
    summary: "Windows volumes have no owning group",
    docs: "On Windows, Kubernetes does not change the group of a volume. NTFS access control lists control access. \
           Zero is treated as set.",
    remedy: "remove it; grant access with NTFS access control lists in the image",
    see: &[POD_INTRO, SOURCE],
    bad: &[
        "securityContext: {fsGroup: 2000}",
        "securityContext: {fsGroup: 0}",
    ],
    good: &["securityContext: {fsGroup: null}"],
    needs: FieldSet::FS_GROUP,
    check: Check::Pod(|cx, out| of_pod(cx, out, "fsGroup", |c| any(c.fs_group))),
    ..FORBIDDEN
};

static FS_GROUP_CHANGE_POLICY: Rule = Rule {
    id: "TSM210",
    name: "fs-group-change-policy",
    severities: SEVERITIES,
    asks_for_nothing: &[
        nothing(
            "OnRootMismatch",
            "Kubernetes never changes the group of a Windows volume, so there is no change to skip",
            TYPES,
        ),
        nothing(
            "Always",
            "fsGroupChangePolicy alone changes nothing, and fsGroup has no effect on Windows",
            TYPES,
        ),
    ],
    summary: "Windows volumes have no owning group",
    docs: "The field defines when the group of a volume is changed. On Windows it is never changed.",
    remedy: "remove it",
    see: &[POD_INTRO, SOURCE],
    bad: &["securityContext: {fsGroupChangePolicy: OnRootMismatch}"],
    good: &["securityContext: {}"],
    needs: FieldSet::FS_GROUP_CHANGE_POLICY,
    check: Check::Pod(|cx, out| {
        of_pod(cx, out, "fsGroupChangePolicy", |c| {
            c.fs_group_change_policy.as_deref()
        });
    }),
    ..FORBIDDEN
};

static SYSCTLS: Rule = Rule {
    id: "TSM211",
    name: "sysctls",
    removable: false,
    loses: "its start: the kubelet rejects the pod",
    summary: "Windows has no sysctls",
    docs: "With `spec.os.name: windows`, the API server rejects the pod. Without it the pod is scheduled, and the \
           kubelet rejects it (SysctlForbidden): the list of safe sysctls is empty on systems other than Linux.",
    remedy: "remove it",
    see: &[
        POD_INTRO,
        SOURCE,
        "kubernetes: pkg/kubelet/sysctl/safe_sysctls.go",
    ],
    bad: &["securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}"],
    good: &["securityContext: {sysctls: []}"],
    needs: FieldSet::SYSCTLS,
    check: Check::Pod(|cx, out| {
        if !cx.spec.security_context.sysctls.is_empty() {
            let finding = out.report(cx.at(&["securityContext", "sysctls"])).removable();
            if cx.spec.os_name().is_none() {
                finding
                    .class(Class::Admit)
                    .message("the kubelet on Windows rejects a pod with sysctls");
            }
        }
    }),
    ..FORBIDDEN
};

static CAPABILITIES: Rule = Rule {
    id: "TSM212",
    name: "capabilities",
    required_by_restricted: true,
    severities: "error; warning for a value that requests nothing; advice for added capabilities of HostProcess pods",
    asks_for_nothing: &[
        nothing("{}", "an empty object changes no capability", TYPES),
        nothing(DROP, "a Windows container has no capabilities to drop", KUBELET),
        AsksForNothing {
            value: ADD,
            pods: Pods::HostProcess,
            because: "a HostProcess container has all rights of its user on the node",
            source: HOST_PROCESS,
        },
    ],
    loses: "the added capabilities",
    summary: "Windows has no POSIX capabilities",
    docs: "Capabilities split the privileges of root on Linux. Windows ignores them. With `spec.os.name: windows`, the \
           API server rejects even an empty object. The restricted Pod Security profile exempts such pods.",
    remedy: "remove it; with spec.os.name: windows, Pod Security does not require it",
    see: &[INTRO, SECURITY, SOURCE],
    bad: &[
        "containers: [{name: app, image: app, securityContext: {capabilities: {drop: [ALL]}}}]",
        "containers: [{name: app, image: app, securityContext: {capabilities: {}}}]",
        "os: null\nhostNetwork: true\nsecurityContext: {windowsOptions: {hostProcess: true}}\n\
         containers: [{name: app, image: app, securityContext: {capabilities: {add: [NET_ADMIN]}}}]",
    ],
    good: &["containers: [{name: app, image: app, securityContext: {runAsNonRoot: true}}]"],
    needs: FieldSet::CAPABILITIES,
    check: Check::Pod(|cx, out| {
        of_containers(cx, out, "capabilities", |c| capabilities(c.capabilities.as_ref()));
    }),
    ..FORBIDDEN
};

static READ_ONLY_ROOT_FILESYSTEM: Rule = Rule {
    id: "TSM213",
    name: "read-only-root-filesystem",
    severities: SEVERITIES,
    asks_for_nothing: &[nothing(
        "false",
        "the root filesystem of a Windows container is writable, as false requests",
        KUBELET,
    )],
    loses: "the protection of its root filesystem",
    summary: "Windows needs a writable root filesystem",
    docs: "The registry and system processes must be able to write inside a Windows container. Windows ignores the \
           field; `false` is treated as set.",
    remedy: "remove the field, also when it is false; mount volumes with readOnly: true instead",
    see: &[
        INTRO,
        "https://kubernetes.io/docs/concepts/storage/windows-storage/",
        SOURCE,
    ],
    bad: &[
        "containers: [{name: app, image: app, securityContext: {readOnlyRootFilesystem: true}}]",
        "containers: [{name: app, image: app, securityContext: {readOnlyRootFilesystem: false}}]",
    ],
    good: &[
        "containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: 'C:/v', readOnly: true}]}]",
    ],
    needs: FieldSet::READ_ONLY_ROOT_FILESYSTEM,
    check: Check::Pod(|cx, out| {
        of_containers(cx, out, "readOnlyRootFilesystem", |c| {
            boolean(c.read_only_root_filesystem)
        });
    }),
    ..FORBIDDEN
};

static PRIVILEGED: Rule = Rule {
    id: "TSM214",
    name: "privileged",
    severities: "error; warning for false; advice for true on HostProcess pods",
    asks_for_nothing: &[
        nothing(
            "false",
            "no Windows container is privileged, as false requests",
            KUBELET,
        ),
        AsksForNothing {
            value: "true",
            pods: Pods::HostProcess,
            because: "a HostProcess container has access to its node without privileged",
            source: HOST_PROCESS,
        },
    ],
    loses: "the access to its node",
    summary: "Windows has no privileged containers",
    docs: "Windows ignores the field. A container that needs access to the host must be a HostProcess container. \
           `false` is treated as set: if a chart or injector writes it, the API server rejects a pod with \
           `spec.os.name: windows`.",
    remedy: "remove the field, also when it is false; use a HostProcess container for access to the host",
    see: &[
        INTRO,
        "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/",
        SOURCE,
    ],
    bad: &[
        "containers: [{name: app, image: app, securityContext: {privileged: true}}]",
        "containers: [{name: app, image: app, securityContext: {privileged: false}}]",
    ],
    good: &["containers: [{name: app, image: app, securityContext: {privileged: null}}]"],
    needs: FieldSet::PRIVILEGED,
    check: Check::Pod(|cx, out| of_containers(cx, out, "privileged", |c| boolean(c.privileged))),
    ..FORBIDDEN
};

static ALLOW_PRIVILEGE_ESCALATION: Rule = Rule {
    id: "TSM215",
    name: "allow-privilege-escalation",
    required_by_restricted: true,
    severities: SEVERITIES,
    asks_for_nothing: &[
        nothing(
            "false",
            "Windows has no setuid programs, so nothing escalates, as false requests",
            TYPES,
        ),
        nothing(
            "true",
            "the value true is the default, and Windows has no setuid programs",
            TYPES,
        ),
    ],
    summary: "Windows has no setuid programs, so there is no such privilege escalation",
    docs: "The field sets no_new_privs on Linux and has no effect on Windows. `allowPrivilegeEscalation: false` from \
           the defaults of a Helm chart is the most common reason why the API server rejects a Windows pod. The \
           restricted Pod Security profile exempts pods with `spec.os.name: windows`.",
    remedy: "remove the field, also when it is false; with spec.os.name: windows, Pod Security does not require it",
    see: &[INTRO, SOURCE],
    bad: &["containers: [{name: app, image: app, securityContext: {allowPrivilegeEscalation: false}}]"],
    good: &["containers: [{name: app, image: app, securityContext: {}}]"],
    needs: FieldSet::ALLOW_PRIVILEGE_ESCALATION,
    check: Check::Pod(|cx, out| {
        of_containers(cx, out, "allowPrivilegeEscalation", |c| {
            boolean(c.allow_privilege_escalation)
        });
    }),
    ..FORBIDDEN
};

static PROC_MOUNT: Rule = Rule {
    id: "TSM216",
    name: "proc-mount",
    severities: SEVERITIES,
    asks_for_nothing: &[nothing(
        "Default",
        "Windows has no /proc that the default could mask",
        TYPES,
    )],
    loses: "the unmasked /proc",
    summary: "Windows has no /proc",
    docs: "The field defines how /proc is mounted. `Default` is treated as set.",
    remedy: "remove it",
    see: &[INTRO, SOURCE],
    bad: &["containers: [{name: app, image: app, securityContext: {procMount: Default}}]"],
    good: &["containers: [{name: app, image: app, securityContext: {}}]"],
    needs: FieldSet::PROC_MOUNT,
    check: Check::Pod(|cx, out| of_containers(cx, out, "procMount", |c| c.proc_mount.as_deref())),
    ..FORBIDDEN
};

static LINUX_SECURITY_ANNOTATION: Rule = Rule {
    id: "TSM217",
    name: "linux-security-annotation",
    severity: Severity::Warning,
    class: Class::Ignored,
    summary: "Windows has neither AppArmor nor seccomp",
    docs: "The API server accepts the old AppArmor and seccomp annotations on a Windows pod, but they have no effect.",
    remedy: "remove the annotation",
    see: &[SECURITY, "kubernetes: pkg/registry/core/pod/strategy.go"],
    bad: &[
        "{kind: Pod, apiVersion: v1, metadata: {name: a, annotations: {seccomp.security.alpha.kubernetes.io/pod: runtime/default}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    good: &[
        "{kind: Pod, apiVersion: v1, metadata: {name: a, annotations: {example.com/seccomp: x}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::ANNOTATIONS,
    check: Check::Pod(|cx, out| {
        const PREFIXES: [&str; 3] = [
            "container.apparmor.security.beta.kubernetes.io/",
            "seccomp.security.alpha.kubernetes.io/",
            "container.seccomp.security.alpha.kubernetes.io/",
        ];
        for (key, _) in &cx.meta.annotations {
            if PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
                out.report(cx.meta_at("annotations").key(key)).removable();
            }
        }
    }),
    ..Rule::BASE
};
