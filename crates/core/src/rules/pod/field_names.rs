//! Fields that the type of their object does not have.

use crate::model::cluster::facts::Facts;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::shown;
use crate::model::windows::os::Verdict;
use crate::rules::rule::{Check, Rule};

/// The kinds without a pod whose fields are checked.
const KINDS: &[Kind] = &[
    Kind::Service,
    Kind::EndpointSlice,
    Kind::NetworkPolicy,
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::StorageClass,
    Kind::CsiNode,
    Kind::Node,
    Kind::RuntimeClass,
    Kind::HorizontalPodAutoscaler,
];

pub(super) static UNKNOWN_FIELD: Rule = Rule {
    id: "TSM429",
    name: "unknown-field",
    severity: Severity::Error,
    severities: "warning; error if the field that was meant selects the operating system or the nodes of pods that are not \
                 known to be Linux pods; advice if a newer Kubernetes may have the field",
    class: Class::Ignored,
    verdicts: &[
        Verdict::Windows,
        Verdict::Conflicting,
        Verdict::Unknown,
        Verdict::Linux,
    ],
    loses: "the selector, the toleration or the HostProcess setting that its author meant",
    summary: "its type has no field of this name",
    docs: "The API server does not store a field that the type of its object does not have. kubectl requests that the API \
           server rejects such an object (`--validate=strict`, the default). Other clients (Helm, Argo CD) request a \
           warning, or nothing: the object is stored without the field. Names of fields are case-sensitive. The rule \
           checks the kinds of Kubernetes that Transom reads, in files only, and warns at most, because in admission the field is gone. It \
           names the field of the same type that differs by at most two characters, or the field of the same name in \
           an object below or above. If there is neither, and the name is written like those of the API, the field may \
           be one of a Kubernetes that is newer than this Transom: then the finding is advice. A misspelled \
           `nodeSelector`, `effect` or `hostProcess` changes where the pod runs, or what it is.",
    remedy: "remove the field, or correct its name",
    see: &[
        "https://kubernetes.io/docs/reference/using-api/api-concepts/#validation-for-unrecognized-or-duplicate-fields",
        "https://kubernetes.io/docs/reference/kubectl/generated/kubectl_apply/",
    ],
    bad: &[
        "nodeSelectors: {kubernetes.io/os: windows}",
        "securityContext: {windowsOptions: {hostprocess: true}}",
        "tolerations: [{key: os, value: windows, Effect: NoSchedule}]",
        "containers: [{name: app, image: app, runAsUserName: ContainerUser}]",
        "newerField: true",
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selectors: {app: web}, ports: [{port: 80}]}}",
    ],
    good: &[
        "serviceAccountName: web",
        "{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: web}, spec: {rollbackTo: {}, template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: app}]}}}}",
    ],
    needs: FieldSet::ALWAYS,
    check: Check::PodAnd(KINDS, |cx, out| {
        for field in &cx.subject.unknown_fields {
            let finding = out.report(field.path.clone());
            let what = format!(
                "the type {} has no field {}",
                field.of,
                shown(field.path.last_name())
            );
            let Some(meant) = &field.meant else {
                finding.severity(Severity::Warning).message(what);
                if field.is_like_a_field {
                    let newest = Facts::KUBERNETES;
                    finding.severity(Severity::Advice).remedy(format!(
                        "remove it, unless the cluster is newer than Kubernetes 1.{newest} and has it"
                    ));
                }
                continue;
            };
            let selects = meant.selects_nodes && cx.subject.kind.has_pod();
            let severity = if selects && cx.inference.verdict != Verdict::Linux {
                Severity::Error
            } else {
                Severity::Warning
            };
            let remedy = if meant.path.parent() == field.path.parent() {
                format!("write {}", meant.path.last_name())
            } else {
                format!("move it to {}", meant.path.named())
            };
            finding.severity(severity).message(what).remedy(remedy);
        }
    }),
    ..Rule::BASE
};
