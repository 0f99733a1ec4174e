//! What admission, not the author, added to a new pod so that the API server would reject it as a Windows pod: placement
//! removes it again.

use crate::model::cluster::facts::PodSecurity;
use crate::model::cluster::severity::Class;
use crate::model::objects::managed_fields::SCC_ANNOTATION;
use crate::model::objects::object::Editable;
use crate::model::objects::pod::PodSpec;
use crate::model::syntax::path::Path;
use crate::model::windows::os::Verdict;
use crate::rules::{Cx, Finding};

/// What admission added to a new pod.
#[derive(Default)]
pub struct AdmissionAdditions {
    /// Whether it added `spec.os`: most likely Transom set it before another webhook added a forbidden field.
    pub os: bool,
    /// The fields that OpenShift's SecurityContextConstraints added to a Windows pod without `spec.os.name: windows`. They
    /// run before webhooks and exempt only pods that set it.
    pub fields: Vec<Path>,
}

impl AdmissionAdditions {
    /// What admission added to a pod with these findings.
    pub fn of(as_written: &Cx<'_>, findings: &[Finding]) -> Self {
        let context = &as_written.subject.context;
        if context.editable != Editable::Pod || context.owners.is_none() {
            return AdmissionAdditions::default();
        }
        AdmissionAdditions {
            os: is_os_added(as_written, findings),
            fields: added_by_scc(as_written, findings),
        }
    }
}

/// Whether the API server would reject a pod because of a `spec.os.name` that no author wrote. Parsing the field owners
/// takes time, so that check is last.
fn is_os_added(as_written: &Cx<'_>, findings: &[Finding]) -> bool {
    let subject = as_written.subject;
    let is_for_windows = subject.pod().is_some_and(|pod| pod.os_name() == Some("windows"));
    // A disabled rule reports nothing.
    let is_refused = || {
        !as_written.policy.actions.is_empty()
            || findings.iter().any(|finding| finding.rule.class == Class::Api)
    };
    is_for_windows && is_refused() && !subject.is_of_author(&Path::of(&["spec", "os", "name"]))
}

fn added_by_scc(as_written: &Cx<'_>, findings: &[Finding]) -> Vec<Path> {
    let Cx { subject, facts, .. } = *as_written;
    let Some(template) = as_written.template else {
        return Vec::new();
    };
    if as_written.inference.verdict != Verdict::Windows
        || template.spec.os_name().is_some()
        || template.meta.annotations.get(SCC_ANNOTATION).is_none()
    {
        return Vec::new();
    }
    // This profile requires them of every pod, also of one that says Windows.
    let profile = facts.pod_security(&subject.namespace);
    if profile == PodSecurity::RestrictedForAll {
        return Vec::new();
    }
    let is_rejected =
        |finding: &&Finding| finding.is_removable() && finding.class == Class::Api && finding.edit.is_some();
    let rejected = findings.iter().filter(is_rejected);
    let mut fields: Vec<Path> = rejected.map(|finding| finding.path.clone()).collect();
    // Pod Security requires it of Windows pods too if it enforces the restricted profile, and it may do so without a label.
    if profile == PodSecurity::Lower {
        fields.extend(non_root(&subject.spec_path(), &template.spec));
    }
    fields.retain(|field| !subject.is_of_author(field));
    fields
}

/// The paths at which a pod sets `runAsNonRoot: true`.
fn non_root(spec: &Path, pod: &PodSpec<'_>) -> Vec<Path> {
    const FIELD: &[&str] = &["securityContext", "runAsNonRoot"];
    let of_pod = (pod.security_context.run_as_non_root == Some(true)).then(|| spec.clone().fields(FIELD));
    let of_containers = pod.visit_containers().filter_map(|(list, index, container)| {
        let is_non_root = container.security_context.run_as_non_root?;
        let list = spec.clone().field(list.field());
        is_non_root.then(|| list.named_item(index, &container.name).fields(FIELD))
    });
    of_pod.into_iter().chain(of_containers).collect()
}
