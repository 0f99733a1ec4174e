//! The operating system itself: what the author declares, and evidence that contradicts itself.

use super::context::PodCx;
use super::rule::{Check, Reporter, Rule};
use crate::model::cluster::facts::PodSecurity;
use crate::model::cluster::policy::PlacementField;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::{ARCH_LABEL, BETA_ARCH_LABEL, BETA_OS_LABEL, OS_LABEL};
use crate::model::nodes::os_selectors::{
    TermOs, is_build_label, is_os_label, os_of_expression, os_of_label, os_of_term, os_of_terms,
};
use crate::model::objects::managed_fields::SCC_ANNOTATION;
use crate::model::objects::object::Body;
use crate::model::objects::pod::{Expression, NodeSelectorTerm, REQUIRED_TERMS, WindowsOptions};
use crate::model::objects::workload::Kind;
use crate::model::syntax::edit::{Edit, string_map};
use crate::model::syntax::json_types::{Map, Str};
use crate::model::syntax::path::Path;
use crate::model::syntax::text::shown;
use crate::model::windows::os::{Evidence, EvidenceKind, Os, Verdict};

/// Rules TSM101 and up.
pub static RULES: &[&Rule] = &[
    &OS_NAME_MISSING,
    &OS_NAME_INVALID,
    &MISSING_OS_SELECTOR,
    &OS_SELECTOR_VALUE,
    &MIXED_OS_CONTRADICTION,
    &POD_OS_LABEL_MISMATCH,
    &DEPRECATED_BETA_OS_LABEL,
    &LINUX_WINDOWS_OPTIONS,
    &OTHER_OS_SELECTED,
];

const GUIDE: &str = "https://kubernetes.io/docs/concepts/windows/user-guide/";
const LABELS: &str = "https://kubernetes.io/docs/reference/labels-annotations-taints/";
const VALIDATION: &str = "kubernetes: pkg/apis/core/validation/validation.go";

/// What restricts the pod to nodes of one operating system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OsSelection {
    Nothing,
    /// A build label or a pool label that only Windows nodes have.
    ByPool,
    /// The label `kubernetes.io/os`, or its deprecated form.
    ByOs,
}

/// What restricts the pod to Windows nodes: its own selectors or its RuntimeClass.
pub fn selects_windows(cx: &PodCx<'_>, with_runtime_class: bool) -> OsSelection {
    selection_of(cx, Os::Windows, with_runtime_class)
}

/// What restricts the pod to nodes of an operating system: its own selectors or its RuntimeClass.
fn selection_of(cx: &PodCx<'_>, os: Os, with_runtime_class: bool) -> OsSelection {
    let class = cx.runtime_class().filter(|_| with_runtime_class);
    let own = cx
        .spec
        .node_selector
        .iter()
        .map(|(key, value)| (&**key, &**value));
    let of_class = class
        .into_iter()
        .flat_map(|class| &class.node_selector)
        .map(|(k, v)| (k.as_str(), v.as_str()));
    // The controller of a DaemonSet reads neither.
    let of_namespace = (cx.facts.node_selector_for(cx.subject).into_iter())
        .filter(|_| with_runtime_class)
        .flatten()
        .map(|(k, v)| (k.as_str(), v.as_str()));
    let mut best = OsSelection::Nothing;
    for (key, value) in own.chain(of_class).chain(of_namespace) {
        if os_of_label(key, value, &cx.facts.node_labels) == Some(os) {
            if is_os_label(key) {
                return OsSelection::ByOs;
            }
            best = OsSelection::ByPool;
        }
    }
    let terms = cx.spec.required_terms();
    let of_terms = os_of_terms(terms, &cx.spec.node_selector, &cx.facts.node_labels);
    let is_selected = of_terms.is_some_and(|(selected, ..)| selected == os);
    let is_by_label = |term: &NodeSelectorTerm<'_>| {
        let by_label = |e: &Expression<'_>| {
            is_os_label(&e.key) && os_of_expression(e, &cx.facts.node_labels) == Some(os)
        };
        os_of_term(term, &cx.facts.node_labels) == TermOs::NoNode
            || term.match_expressions.iter().any(by_label)
    };
    if is_selected && terms.iter().all(is_by_label) {
        OsSelection::ByOs
    } else if is_selected || best == OsSelection::ByPool {
        OsSelection::ByPool
    } else {
        OsSelection::Nothing
    }
}

/// The edit that selects the nodes of the operating system that the author states for the file; `None` without such a
/// statement.
pub fn stated_selector(cx: &PodCx<'_>) -> Option<Edit> {
    let os = cx.subject.context.stated_os?.label();
    let selector = cx.at(&["nodeSelector"]);
    Some(if cx.spec.node_selector.is_empty() {
        Edit::Set(selector, string_map(OS_LABEL, os))
    } else {
        Edit::Set(selector.key(OS_LABEL), os.into())
    })
}

static OS_NAME_MISSING: Rule = Rule {
    id: "TSM101",
    name: "os-name-missing",
    severities: "advice; warning when OpenShift would write Linux fields into the pod, or Pod Security would require them",
    severity: Severity::Warning,
    class: Class::BestPractice,
    kubernetes: 24..=Rule::STILL,
    is_first: true,
    placed_by: Some(PlacementField::OsName),
    summary: "the pod does not say that it is for Windows",
    docs: "With `spec.os.name: windows`, the API server validates the pod's fields, and Pod Security skips the checks \
           that do not apply to Windows. A kubelet on another operating system rejects the pod. The scheduler does not \
           read the field, so the nodeSelector is needed as well. Placement sets the field on pods if the API server \
           then still accepts the pod. The finding is advice. It is a warning if the namespace enforces Pod Security's \
           restricted profile, which requires Linux-only fields of all other pods. It is also a warning on OpenShift: its \
           SecurityContextConstraints exempt only pods that set the field, and they run before any webhook. So a \
           template must set it itself.",
    remedy: "add spec.os.name: windows",
    see: &[
        GUIDE,
        "https://kubernetes.io/docs/concepts/workloads/pods/#pod-os",
    ],
    bad: &[
        "os: null",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {openshift.io/scc: restricted-v2}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    good: &["os: {name: windows}"],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        let has_scc = cx.facts.has_scc || cx.meta.annotations.get(SCC_ANNOTATION).is_some();
        // OpenShift's constraints run before placement and may reject the pods, so the template itself must set the
        // field.
        let as_written = cx
            .subject
            .pod()
            .filter(|_| has_scc && cx.subject.kind != Kind::Pod);
        if as_written.unwrap_or(cx.spec).os.is_some() || !cx.subject.kind.has_pod_os() {
            return;
        }
        let finding = out.report(cx.at(&["os", "name"]));
        if has_scc {
            finding.message(
                "OpenShift adds Linux-only fields (SELinux, user and group IDs) to pods that do not say that they are \
                 for Windows, or rejects them",
            );
        } else if requires_linux_fields(cx) {
            finding
                .message("Pod Security's restricted profile requires Linux-only fields of pods that do not say that they are for Windows")
                .remedy("add spec.os.name: windows, and remove all fields that only Linux has");
        } else {
            finding.severity(Severity::Advice);
        }
    }),
    ..Rule::BASE
};

/// Whether Pod Security requires fields of this pod that it does not require with `spec.os.name: windows`. It rejects a
/// HostProcess pod either way.
fn requires_linux_fields(cx: &PodCx<'_>) -> bool {
    let profile = cx.facts.pod_security(&cx.subject.namespace);
    profile == PodSecurity::Restricted && !cx.spec.has_host_process()
}

static OS_NAME_INVALID: Rule = Rule {
    id: "TSM102",
    name: "os-name-invalid",
    class: Class::ApiAlways,
    kubernetes: 24..=Rule::STILL,
    verdicts: &[
        Verdict::Windows,
        Verdict::Linux,
        Verdict::Unknown,
        Verdict::Conflicting,
    ],
    summary: "the operating system must be windows or linux",
    docs: "The API server compares `spec.os.name` exactly: `Windows` is not `windows`.",
    remedy: "write spec.os.name: windows (or linux), in lower case",
    see: &[
        "https://kubernetes.io/docs/concepts/workloads/pods/#pod-os",
        VALIDATION,
    ],
    bad: &["os: {name: Windows}", "os: {name: freebsd}", "os: {name: ''}"],
    good: &["os: {name: windows}"],
    needs: FieldSet::OS,
    check: Check::Pod(|cx, out| {
        if let Some(os) = &cx.spec.os {
            let name = os.name.as_deref().unwrap_or_default();
            if name != "windows" && name != "linux" {
                let message = match Os::parse_lenient(name) {
                    Some(os) => format!("the value is case-sensitive: write {}, in lower case", os.label()),
                    None if name.is_empty() => "spec.os has no name".to_owned(),
                    None => format!(
                        "Kubernetes does not know the operating system \"{}\"; use windows or linux",
                        shown(name)
                    ),
                };
                let finding = out.report(cx.at(&["os", "name"])).message(message);
                finding.edit = lower_case(&finding.path, name);
            }
        }
    }),
    ..Rule::BASE
};

static MISSING_OS_SELECTOR: Rule = Rule {
    id: "TSM103",
    name: "missing-os-selector",
    severities: "warning; advice when another label keeps the pod on Windows nodes; error when only `--os` says that the \
                 pod is for Windows",
    class: Class::BestPractice,
    placed_by: Some(PlacementField::NodeSelector),
    summary: "nothing keeps this Windows pod off Linux nodes",
    docs: "The scheduler ignores `spec.os.name` and does not know the operating system of images. Without a \
           nodeSelector, a required node affinity or a RuntimeClass that selects `kubernetes.io/os: windows`, the \
           scheduler can place a Windows pod on any node. On a Linux node the pod fails. Placement adds the \
           nodeSelector to pods. If nothing in the pod says that it is for Windows, and only `--os windows` does, the \
           finding is an error: admission then leaves the pod alone. Another rule, `daemonset-template-unselective`, \
           checks the templates of DaemonSets.",
    remedy: "add nodeSelector kubernetes.io/os: windows",
    see: &[GUIDE],
    bad: &[
        "nodeSelector: null",
        "nodeSelector: {kubernetes.io/os: null, node.kubernetes.io/windows-build: 10.0.20348}",
        "{nodeSelector: null, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}, {matchExpressions: [{key: pool, operator: Exists}]}]}}}}",
        // Only the author's statement: an error.
        "# --os windows\n{os: null, nodeSelector: null, securityContext: null, containers: [{name: app, image: app}]}",
        "# --os windows\n{os: null, nodeSelector: {disk: ssd, kubernetes.io/os: null}, containers: [{name: app, image: app}]}",
    ],
    good: &[
        "{}",
        "# --os linux\n{os: null, nodeSelector: null, containers: [{name: app, image: app}]}",
        "{nodeSelector: null, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [linux]}]}]}}}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        let is_placed = cx.spec.is_bound() || cx.subject.is_placed_by_daemonset();
        // `os-selector-value` reports a value that no node has.
        let has_value = cx.spec.node_selector.get(OS_LABEL).is_some();
        let kind = cx.subject.kind;
        if is_placed || has_value || kind.is_daemon_set() || !kind.selects_nodes() {
            return;
        }
        match selects_windows(cx, true) {
            OsSelection::ByOs => {}
            OsSelection::ByPool => {
                out.report(cx.at(&["nodeSelector"]))
                    .severity(Severity::Advice)
                    .message("only another label keeps the pod on Windows nodes");
            }
            OsSelection::Nothing => {
                let finding = out.report(cx.at(&["nodeSelector"])).severity(Severity::Warning);
                finding.edit = stated_selector(cx);
                if cx.inference.is_stated() {
                    finding.severity(Severity::Error).message(
                        "nothing in the pod says that it is for Windows, so admission leaves it alone and the scheduler can \
                         place it on Linux nodes",
                    );
                }
            }
        }
    }),
    ..Rule::BASE
};

static OS_SELECTOR_VALUE: Rule = Rule {
    id: "TSM104",
    name: "os-selector-value",
    verdicts: &[Verdict::Windows, Verdict::Conflicting],
    summary: "no node has this operating system label",
    docs: "Windows nodes have the label `kubernetes.io/os: windows`, and label values are compared exactly. The pod \
           stays Pending.",
    remedy: "write windows, in lower case",
    see: &[LABELS],
    bad: &[
        "nodeSelector: {kubernetes.io/os: Windows}",
        "nodeSelector: {kubernetes.io/os: win}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [WINDOWS]}]}]}}}",
    ],
    good: &[
        "nodeSelector: {kubernetes.io/os: windows}",
        "nodeSelector: {kubernetes.io/os: windows, os: Windows}",
    ],
    needs: FieldSet::SELECTS_OS,
    check: Check::Pod(|cx, out| {
        let is_wrong = |value: &str| ![Os::Windows, Os::Linux].iter().any(|os| os.label() == value);
        for (key, value) in &cx.spec.node_selector {
            if is_os_label(key) && is_wrong(value) {
                let finding = out.report(cx.at(&["nodeSelector"]).key(key)).message(format!(
                    "no node has the operating system \"{}\"; use windows or linux",
                    shown(value)
                ));
                finding.edit = lower_case(&finding.path, value);
            }
        }
        for expression in cx.required_expressions() {
            let only_wrong = expression.values.iter().all(|value| is_wrong(value));
            if is_os_label(&expression.key)
                && &*expression.operator == "In"
                && only_wrong
                && !expression.values.is_empty()
            {
                let finding = out.report(expression.at("values"));
                if let [only] = &expression.values[..] {
                    finding.edit = lower_case(&finding.path.clone().item(0), only);
                }
            }
        }
    }),
    ..Rule::BASE
};

/// The edit that writes an operating system in lower case; `None` if the value names none.
fn lower_case(path: &Path, value: &str) -> Option<Edit> {
    let os = Os::parse_lenient(value)?;
    Some(Edit::Set(path.clone(), os.label().into()))
}

static MIXED_OS_CONTRADICTION: Rule = Rule {
    id: "TSM105",
    name: "mixed-os-contradiction",
    verdicts: &[Verdict::Conflicting],
    summary: "the pod says Windows in one place and Linux in another",
    docs: "`spec.os.name`, nodeSelector, required node affinity, the RuntimeClass, HostProcess and the default node \
           selector of the namespace must agree. If they \
           do not, the pod stays Pending, or the kubelet rejects it (PodOSNotSupported). Only the author knows which \
           one is right, so Transom changes nothing.",
    remedy: "remove the wrong one",
    see: &[GUIDE],
    bad: &[
        "nodeSelector: {kubernetes.io/os: linux}",
        "{os: {name: linux}, nodeSelector: {kubernetes.io/os: windows}}",
        "{os: {name: linux}, nodeSelector: null, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}}",
    ],
    good: &[
        "{}",
        "{os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        let evidence = &cx.inference.evidence;
        let Some(first) = evidence.first() else { return };
        let Some(other) = evidence.iter().find(|e| e.kind.is_strong() && e.os != first.os) else {
            return;
        };
        // The author can change the own field, and not the namespace.
        let is_of_namespace = other.kind == EvidenceKind::NamespaceNodeSelector;
        let changeable = if is_of_namespace { first } else { other };
        out.report(changeable.path.clone()).message(format!(
            "{} is for {}, but {} is for {}",
            sign(other),
            other.os.label(),
            sign(first),
            first.os.label()
        ));
    }),
    ..Rule::BASE
};

/// A short description of the evidence: the field and its value.
fn sign(evidence: &Evidence) -> String {
    let what = match evidence.kind {
        EvidenceKind::OsName => "spec.os.name",
        EvidenceKind::NodeSelector | EvidenceKind::NodeLabel => "the nodeSelector",
        EvidenceKind::NamespaceNodeSelector => "the default node selector of the namespace",
        EvidenceKind::NodeAffinity => "the node affinity",
        EvidenceKind::RuntimeClass | EvidenceKind::AbsentRuntimeClass => "the RuntimeClass",
        EvidenceKind::HostProcess => return "a HostProcess container".to_owned(),
        EvidenceKind::Image => "the image",
        EvidenceKind::Stated => "the argument",
        EvidenceKind::Namespace => "the namespace",
    };
    format!("{what} ({})", shown(&evidence.value))
}

static POD_OS_LABEL_MISMATCH: Rule = Rule {
    id: "TSM106",
    name: "pod-os-label-mismatch",
    severities: "error; warning when only an image says what the pod is for",
    class: Class::Admit,
    kubernetes: 22..=Rule::STILL,
    verdicts: &[Verdict::Windows, Verdict::Linux],
    summary: "the kubelet rejects a pod whose label kubernetes.io/os differs from that of its node",
    docs: "The kubelet compares the pod's label (not its nodeSelector) with its own operating system and rejects the \
           pod (PodOSSelectorNodeLabelDoesNotMatch). A controller then creates the next pod, which is rejected too. If \
           only an image says which operating system the pod is for, the finding is a warning. If only the default of \
           the namespace does, there is none: the label may be right.",
    remedy: "remove the label, or write kubernetes.io/os: windows",
    see: &["kubernetes: pkg/kubelet/lifecycle/predicate.go, rejectPodAdmissionBasedOnOSSelector"],
    bad: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kubernetes.io/os: linux}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {labels: {kubernetes.io/os: Windows}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kubernetes.io/os: windows}}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}}",
        // Only the image says Windows: a warning.
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kubernetes.io/os: linux}}, spec: {containers: [{name: app, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kubernetes.io/os: linux}}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kubernetes.io/os: windows}}, spec: {containers: [{name: app, image: app}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {kubernetes.io/os: windows}}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::OS_LABEL,
    check: Check::Pod(|cx, out| {
        let decisive = cx.inference.evidence.first();
        if decisive.is_some_and(|sign| sign.kind == EvidenceKind::Namespace) {
            return;
        }
        let is_for = match cx.inference.verdict {
            Verdict::Linux => Os::Linux,
            _ => Os::Windows,
        };
        let label = cx.meta.labels.get(OS_LABEL);
        if label.is_some_and(|os| **os != *is_for.label()) {
            let finding = out.report(cx.meta_at("labels").key(OS_LABEL));
            if is_for == Os::Linux {
                finding.remedy("remove the label, or write kubernetes.io/os: linux");
            }
            if cx.inference.is_weak() {
                finding
                    .severity(Severity::Warning)
                    .class(Class::BestPractice)
                    .message(format!(
                        "the image is for {}, but a kubelet there rejects a pod with this label",
                        if is_for == Os::Linux { "Linux" } else { "Windows" }
                    ));
            }
        }
    }),
    ..Rule::BASE
};

static DEPRECATED_BETA_OS_LABEL: Rule = Rule {
    id: "TSM107",
    name: "deprecated-beta-os-label",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 14..=Rule::STILL,
    verdicts: &[Verdict::Windows, Verdict::Conflicting],
    summary: "the label has been deprecated since Kubernetes 1.14",
    docs: "Nodes still have `beta.kubernetes.io/os` and `beta.kubernetes.io/arch`, but not every tool that creates \
           nodes sets them (autoscalers that scale from zero, EKS admission). Placement writes the stable label into \
           the nodeSelector of pods.",
    remedy: "use kubernetes.io/os and kubernetes.io/arch",
    see: &[LABELS],
    bad: &[
        "nodeSelector: {kubernetes.io/os: null, beta.kubernetes.io/os: windows}",
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: beta.kubernetes.io/arch, operator: In, values: [amd64]}]}}]}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: w}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {beta.kubernetes.io/os: windows}}}",
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: w}, spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: beta.kubernetes.io/os, operator: In, values: [windows]}]}]}}}}",
    ],
    good: &[
        "{}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: w}, handler: runc, scheduling: {nodeSelector: {beta.kubernetes.io/os: linux}}}",
    ],
    needs: FieldSet::SELECTS_BETA,
    check: Check::PodAnd(&[Kind::RuntimeClass, Kind::PersistentVolume], |cx, out| {
        if let Some(pod) = cx.pod() {
            beta_labels_of_pod(&pod, out);
            return;
        }
        match &cx.subject.body {
            Body::RuntimeClass(class) => {
                let selector = class
                    .scheduling
                    .iter()
                    .flat_map(|scheduling| &scheduling.node_selector);
                for (key, _) in selector
                    .filter(|(k, v)| **k == *BETA_OS_LABEL && Os::parse_lenient(v) == Some(Os::Windows))
                {
                    let finding = out.report(Path::of(&["scheduling", "nodeSelector"]).key(key));
                    let scheduling = class.scheduling.as_ref();
                    finding.edit =
                        scheduling.and_then(|of| stable_key(&finding.path, &of.node_selector, key));
                }
            }
            Body::Volume(volume) => {
                let required = volume
                    .spec
                    .node_affinity
                    .as_ref()
                    .and_then(|affinity| affinity.required.as_ref());
                let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
                let base = Path::of(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
                beta_labels_of_terms(
                    terms,
                    |key, expression| key == BETA_OS_LABEL && expression == Some(Os::Windows),
                    &base,
                    out,
                );
            }
            _ => {}
        }
    }),
    ..Rule::BASE
};

fn beta_labels_of_pod(cx: &PodCx<'_>, out: &mut Reporter<'_>) {
    for (key, _) in &cx.spec.node_selector {
        if is_beta(key) {
            let finding = out.report(cx.at(&["nodeSelector"]).key(key));
            finding.edit = stable_key(&finding.path, &cx.spec.node_selector, key);
        }
    }
    beta_labels_of_terms(
        cx.spec.required_terms(),
        |key, _| is_beta(key),
        &cx.at(REQUIRED_TERMS),
        out,
    );
    let affinity = cx
        .spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    for (p, preferred) in affinity
        .iter()
        .flat_map(|affinity| affinity.preferred.iter().enumerate())
    {
        for (e, expression) in preferred.preference.match_expressions.iter().enumerate() {
            if is_beta(&expression.key) {
                let list = cx.at(&[
                    "affinity",
                    "nodeAffinity",
                    "preferredDuringSchedulingIgnoredDuringExecution",
                ]);
                let finding = out.report(
                    list.item(p)
                        .fields(&["preference", "matchExpressions"])
                        .item(e)
                        .field("key"),
                );
                finding.edit = Some(Edit::Set(finding.path.clone(), stable(&expression.key).into()));
            }
        }
    }
}

fn beta_labels_of_terms(
    terms: &[NodeSelectorTerm<'_>],
    counts: impl Fn(&str, Option<Os>) -> bool,
    base: &Path,
    out: &mut Reporter<'_>,
) {
    for (t, term) in terms.iter().enumerate() {
        for (e, expression) in term.match_expressions.iter().enumerate() {
            if counts(&expression.key, os_of_expression(expression, &[])) {
                let finding = out.report(
                    base.clone()
                        .item(t)
                        .field("matchExpressions")
                        .item(e)
                        .field("key"),
                );
                finding.edit = Some(Edit::Set(finding.path.clone(), stable(&expression.key).into()));
            }
        }
    }
}

fn is_beta(key: &str) -> bool {
    key == BETA_OS_LABEL || key == BETA_ARCH_LABEL
}

/// The stable label in place of a deprecated one.
fn stable(beta: &str) -> &'static str {
    if beta == BETA_OS_LABEL {
        OS_LABEL
    } else {
        ARCH_LABEL
    }
}

/// The edit that writes the stable label into a selector; `None` if the selector has it with another value.
fn stable_key(path: &Path, selector: &Map<'_, Str<'_>>, beta: &str) -> Option<Edit> {
    let stable = stable(beta);
    match selector.get(stable) {
        None => Some(Edit::Move(path.clone(), path.parent()?.key(stable))),
        Some(value) if selector.get(beta) == Some(value) => Some(Edit::Remove(path.clone())),
        Some(_) => None,
    }
}

static LINUX_WINDOWS_OPTIONS: Rule = Rule {
    id: "TSM108",
    name: "linux-windows-options",
    class: Class::ApiAlways,
    kubernetes: 24..=Rule::STILL,
    verdicts: &[Verdict::Linux, Verdict::Conflicting],
    summary: "a pod with spec.os.name: linux cannot have windowsOptions",
    docs: "The API server rejects windowsOptions (even if empty) on a pod with `spec.os.name: linux`.",
    remedy: "remove windowsOptions, or write spec.os.name: windows",
    see: &[
        "https://kubernetes.io/docs/concepts/workloads/pods/#pod-os",
        VALIDATION,
    ],
    bad: &[
        "{os: {name: linux}, nodeSelector: null}",
        "{os: {name: linux}, nodeSelector: null, containers: [{name: app, image: app}], securityContext: {windowsOptions: {}}}",
    ],
    good: &[
        "{os: {name: linux}, nodeSelector: null, containers: [{name: app, image: app}]}",
        "{os: null, nodeSelector: {kubernetes.io/os: linux}}",
    ],
    needs: FieldSet::WINDOWS_OPTIONS,
    check: Check::Pod(|cx, out| {
        const OPTIONS: &[&str] = &["securityContext", "windowsOptions"];
        if cx.spec.os_name() != Some(Os::Linux.label()) {
            return;
        }
        if cx.spec.windows_options().is_some() {
            out.report(cx.at(OPTIONS)).removable();
        }
        for container in cx.containers() {
            let options: Option<&WindowsOptions<'_>> = container.windows_options();
            if options.is_some() {
                out.report(container.at(OPTIONS)).removable();
            }
        }
    }),
    ..Rule::BASE
};

static OTHER_OS_SELECTED: Rule = Rule {
    id: "TSM109",
    name: "other-os-selected",
    severity: Severity::Warning,
    class: Class::BestPractice,
    verdicts: &[Verdict::Windows, Verdict::Linux],
    summary: "the pod does not select the operating system that --os states",
    docs: "With `--os windows` or `--os linux`, or the field `os` of `.transom.yaml`, you state for which operating \
           system the pods of your files are. The rule then reports a pod that is for the other system, and with `--os \
           linux` a pod that selects no operating system: the scheduler can place it on Windows nodes without taints. \
           With `--os windows`, the rules `missing-os-selector` and `daemonset-template-unselective` report pods that \
           select none. Admission knows no `--os`, and never reports this rule.",
    remedy: "select the operating system with nodeSelector kubernetes.io/os, or change --os",
    see: &[GUIDE],
    bad: &[
        "# --os linux\n{}",
        "# --os windows\n{os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}}",
        "# --os linux\n{os: null, nodeSelector: null, containers: [{name: app, image: app}]}",
        "# --os linux\n{os: {name: linux}, nodeSelector: {disk: ssd, kubernetes.io/os: null}, containers: [{name: app, image: app}]}",
    ],
    good: &[
        "{os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}}",
        "# --os windows\n{}",
        "# --os windows\n{os: null, nodeSelector: null, containers: [{name: app, image: app}]}",
        "# --os linux\n{os: null, nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::Pod(|cx, out| {
        let Some(stated) = cx.subject.context.stated_os else {
            return;
        };
        let evidence = cx.inference.evidence.first();
        if let Some(other) = evidence.filter(|evidence| evidence.os != stated) {
            out.report(other.path.clone()).message(format!(
                "{} is for {}, but --os says {}",
                sign(other),
                other.os.label(),
                stated.label()
            ));
            return;
        }
        let is_placed = cx.spec.is_bound() || cx.subject.is_placed_by_daemonset();
        let is_selected = || selection_of(cx, stated, true) == OsSelection::ByOs;
        if stated == Os::Windows || is_placed || !cx.subject.kind.selects_nodes() || is_selected() {
            return;
        }
        let finding = out
            .report(cx.at(&["nodeSelector"]))
            .message("nothing keeps this Linux pod off Windows nodes")
            .remedy("add nodeSelector kubernetes.io/os: linux");
        finding.edit = stated_selector(cx);
    }),
    ..Rule::BASE
};

/// Whether a selector of the pod, or its RuntimeClass, uses a label for the operating system or for builds.
pub fn speaks_of_os(cx: &PodCx<'_>) -> bool {
    let counts = |key: &str| is_os_label(key) || is_build_label(key);
    let of_class = || {
        cx.runtime_class()
            .is_some_and(|class| class.node_selector.keys().any(|key| counts(key)))
    };
    let of_terms = || {
        cx.spec
            .required_terms()
            .iter()
            .flat_map(|term| &term.match_expressions)
            .any(|e| counts(&e.key))
    };
    cx.spec.node_selector.iter().any(|(key, _)| counts(key)) || of_class() || of_terms()
}
