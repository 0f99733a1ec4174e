//! Pods on nodes that cannot run them, and pods that are pending for a reason that Transom checks. Pure.

mod pending;
mod status;
mod symptoms;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use self::status::{KubeletMessages, PodRecord};
use super::context::EvalContext;
use super::report::{PodFinding, PodProblem};
use crate::cluster::node::NodeView;
use crate::engine::infer_os;
use crate::model::cluster::facts::RuntimeClassFacts;
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns as _, OS_LABEL};
use crate::model::objects::object::Object;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::shown;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, RELEASES};
use crate::model::windows::image::{ImageRef, build_hint, os_hint};
use crate::model::windows::os::{Inference, Os, Verdict};
use crate::rules::{Image, KnownVersions};

/// The nodes and RuntimeClasses that pods are checked against.
pub struct PodContext<'g> {
    /// The inputs that stored objects are evaluated against.
    pub eval_context: &'g EvalContext<'g>,
    /// The nodes by name, including every Windows node. `None` if nodes could not be read; then misplaced
    /// pods are not reported.
    pub nodes: Option<&'g BTreeMap<String, Arc<NodeView>>>,
    /// Whether a node of this name is known and is not a Windows node. An unknown node may be a new one.
    pub is_other: &'g (dyn Fn(&str) -> bool + Send + Sync),
    /// Whether RuntimeClasses could be read.
    pub knows_classes: bool,
}

/// Whether [`trouble`] may report a pod: it terminates, or it has not ended and is not ready or has a label of another
/// operating system.
pub fn may_have_trouble(subject: &Object<'_>, json: &str) -> bool {
    if subject.meta.deletion_timestamp.0 {
        return true;
    }
    let record = PodRecord::read(json);
    !record.has_ended() && (!record.is_ready() || foreign_os_label(subject).is_some())
}

/// The value of the label of a pod that a Windows kubelet rejects.
fn foreign_os_label<'s>(subject: &'s Object<'_>) -> Option<&'s str> {
    let label = subject.meta.labels.get(OS_LABEL)?;
    (**label != *Os::Windows.label()).then_some(&**label)
}

/// What is wrong with the placement of a pod, or why it is pending; `None` if nothing is, or if Transom does
/// not check the reason.
///
/// A ready pod is in the right place, regardless of its fields; only its label can be wrong. If only the tag of an image names an
/// operating system or a build, the problem is reported only if the kubelet confirms it; a repository that
/// has only Windows images needs no confirmation. `owner` is the top owner of the pod, if it is known; otherwise the controller
/// of the pod is used.
pub fn trouble(
    subject: &Object<'_>,
    json: &str,
    owner: Option<WorkloadName>,
    pod_context: &PodContext<'_>,
    now: Timestamp,
) -> Option<PodFinding> {
    let spec = subject.pod()?;
    let record = PodRecord::read(json);
    let windows = || {
        let node = &**pod_context.nodes?.get(spec.node_name.as_deref()?)?;
        node.is_windows().then_some(node)
    };
    let owner = owner.or_else(|| WorkloadName::owner_of(&subject.meta, &subject.namespace));
    let owner = owner.map(|owner| owner.in_namespace());
    let ((wrong, message, remedy), since) = if subject.meta.deletion_timestamp.0 {
        (symptoms::terminating(&record, windows()?, now)?, None)
    } else {
        if pod_context.eval_context.facts.is_stored_mirror(subject)
            || record.has_ended()
            || !may_have_trouble(subject, json)
        {
            return None;
        }
        let policy = pod_context.eval_context.policy_in(&subject.namespace);
        let pod = ScannedPod {
            subject,
            spec,
            owner: owner.as_deref(),
            inference: infer_os(subject, pod_context.eval_context.facts, &policy),
            policy: &policy,
            pod_context,
        };
        let found = pod.trouble(&record, windows(), now);
        (found.or_else(|| pod.relabelled())?, record.since())
    };
    Some(PodFinding {
        namespace: subject.namespace.to_string(),
        name: subject.meta.name.to_string(),
        owner,
        node: spec.node_name.as_ref().map(ToString::to_string),
        problem: wrong,
        message,
        remedy,
        since,
    })
}

/// The first image of a pod whose name says Windows, certain or not. It is too weak to classify the pod as
/// Windows, but strong enough to not recommend Linux nodes.
pub fn image_for_windows<'p>(pod: &'p PodSpec<'_>) -> Option<&'p str> {
    let mut images = pod
        .visit_containers()
        .filter_map(|(_, _, container)| container.image.as_deref());
    images.find(|text| {
        ImageRef::parse(text)
            .is_ok_and(|image| os_hint(&image).os() == Some(Os::Windows) || build_hint(&image).is_some())
    })
}

/// The builds of an image, for messages.
fn any_of(versions: &KnownVersions) -> String {
    let builds: Vec<String> = versions.builds().map(|build| build.to_string()).collect();
    builds.join(" or ")
}

/// Which builds run images of these versions.
fn build_advice(versions: &KnownVersions, isolation: ContainerIsolation) -> String {
    let releases = RELEASES.iter().map(|release| release.build);
    let runs: Vec<String> = releases
        .filter(|host| versions.compatibility(*host, isolation) == Compatibility::Runs)
        .map(|host| host.to_string())
        .collect();
    if runs.is_empty() {
        return "use an image for a build that nodes have".to_owned();
    }
    format!("require {BUILD_LABEL} to be {}", runs.join(" or "))
}

/// The problem, its message, and the remedy.
type TroubleText = (PodProblem, String, String);

/// One pod with its context.
struct ScannedPod<'p> {
    subject: &'p Object<'p>,
    spec: &'p PodSpec<'p>,
    /// The top owner, as in `Deployment web`.
    owner: Option<&'p str>,
    inference: Inference,
    policy: &'p Policy,
    pod_context: &'p PodContext<'p>,
}

impl ScannedPod<'_> {
    /// What is wrong with its node, or why it has none. `windows`: its node, if that is a Windows node.
    fn trouble(&self, record: &PodRecord, windows: Option<&NodeView>, now: Timestamp) -> Option<TroubleText> {
        if record.is_ready() {
            return None;
        }
        match self.spec.node_name.as_deref().filter(|node| !node.is_empty()) {
            Some(node) => (self.misplaced(node, record.kubelet_messages()))
                .or_else(|| symptoms::failing(self.spec, record, windows?)),
            None if record.waits_for_a_node(now) => self.waits(),
            None => None,
        }
    }

    fn is_for(&self, verdict: Verdict) -> bool {
        self.inference.verdict == verdict
    }

    /// Whether evidence other than an image or the namespace gives the operating system of the pod.
    fn is_certain(&self) -> bool {
        !self.inference.is_weak()
    }

    /// The RuntimeClass that the pod names; an error if none of that name exists.
    fn class(&self) -> Result<Option<(&str, &RuntimeClassFacts)>, &str> {
        let Some(name) = self.spec.runtime_class_name.as_deref() else {
            return Ok(None);
        };
        match self.pod_context.eval_context.facts.runtime_classes.get(name) {
            Some(class) => Ok(Some((name, class))),
            None if self.pod_context.knows_classes => Err(name),
            None => Ok(None),
        }
    }

    /// Whether one of its images is from a repository that has images for Windows only. Such an image needs
    /// no second piece of evidence; the tags of other repositories are unreliable.
    fn has_windows_only_image(&self) -> bool {
        let images = Image::of_pod(self.spec, self.pod_context.eval_context.facts);
        (images.iter().flatten()).any(|image| image.reference.is_windows_only_repository())
    }

    fn misplaced(&self, node: &str, kubelet_messages: KubeletMessages) -> Option<TroubleText> {
        let nodes = self.pod_context.nodes?;
        let windows = nodes.get(node).filter(|view| view.is_windows());
        match windows {
            Some(view) => self.on_windows(view, kubelet_messages),
            None if (self.pod_context.is_other)(node) => self.on_another(node, kubelet_messages),
            None => None,
        }
    }

    /// A pod on a node that is not a Windows node.
    fn on_another(&self, node: &str, kubelet_messages: KubeletMessages) -> Option<TroubleText> {
        let is_sure =
            || self.is_certain() || self.has_windows_only_image() || kubelet_messages.is_wrong_platform();
        if !self.is_for(Verdict::Windows) || !is_sure() {
            return None;
        }
        let remedy = self.recreate_advice("select kubernetes.io/os: windows");
        Some((
            PodProblem::OperatingSystem,
            format!("a Windows pod on {node}, which is not a Windows node"),
            remedy,
        ))
    }

    fn on_windows(&self, node: &NodeView, kubelet_messages: KubeletMessages) -> Option<TroubleText> {
        let name = &node.name;
        let of_linux =
            self.is_for(Verdict::Linux) && (self.is_certain() || kubelet_messages.is_wrong_platform());
        // A pod without evidence may be for Windows: agents often support every operating system. A pod whose
        // image is for Windows by its name is excluded: it has no image for the build of this node.
        let of_another_build = self.is_for(Verdict::Unknown) && image_for_windows(self.spec).is_some();
        let of_none =
            self.is_for(Verdict::Unknown) && !of_another_build && kubelet_messages.is_wrong_platform();
        if of_linux || of_none {
            let message = if of_linux {
                format!("a Linux pod on {name}, which is a Windows node")
            } else {
                format!(
                    "on {name}, a Windows node, where its image does not run; it selects no operating system"
                )
            };
            let remedy = self.recreate_advice("select kubernetes.io/os: linux");
            return Some((PodProblem::OperatingSystem, message, remedy));
        }
        if of_another_build {
            return self.wrong_build(node, kubelet_messages);
        }
        if self.is_for(Verdict::Linux) || self.is_for(Verdict::Unknown) {
            return None;
        }
        self.without_class(Some(node))
            .or_else(|| self.wrong_build(node, kubelet_messages))
    }

    /// A Windows pod with a label of another operating system, whose owner is evaluated instead of it: the pod was
    /// relabelled after its owner created it.
    fn relabelled(&self) -> Option<TroubleText> {
        let label = foreign_os_label(self.subject)?;
        let owner = self.subject.owner_kind()?;
        let is_reported = self.pod_context.eval_context.evaluates(owner);
        if !is_reported || !self.is_for(Verdict::Windows) || !self.is_certain() {
            return None;
        }
        Some((
            PodProblem::OsLabel,
            format!(
                "its label {OS_LABEL} is \"{}\", so its kubelet rejects it, at the latest when the kubelet restarts",
                shown(label)
            ),
            format!("remove the label {OS_LABEL} from the pod, or set it to windows"),
        ))
    }

    /// A pod whose RuntimeClass does not exist, or whose node does not have the handler.
    fn without_class(&self, node: Option<&NodeView>) -> Option<TroubleText> {
        let problem = |message, remedy: String| Some((PodProblem::WaitsForRuntimeClass, message, remedy));
        let (name, class) = match self.class() {
            Err(name) => {
                let remedy = format!("create the RuntimeClass {name} again, or name another one");
                return problem(
                    format!("there is no RuntimeClass {name}, which the pod names"),
                    remedy,
                );
            }
            Ok(class) => class?,
        };
        let node = node?;
        let has_it = node.runtime_handlers.contains(&class.handler);
        if node.runtime_handlers.is_empty() || has_it {
            return None;
        }
        let handler = &class.handler;
        problem(
            format!(
                "the node {} has no handler {handler}, which the RuntimeClass {name} requires",
                node.name
            ),
            format!(
                "configure the handler in the node's containerd, or change the RuntimeClass {name} to select nodes that have it"
            ),
        )
    }

    fn isolation(&self) -> ContainerIsolation {
        if self.spec.has_host_process() {
            return ContainerIsolation::HostProcess;
        }
        let class = self.class().ok().flatten();
        class.map_or(ContainerIsolation::Process, |(_, class)| class.isolation())
    }

    fn wrong_build(&self, node: &NodeView, kubelet_messages: KubeletMessages) -> Option<TroubleText> {
        let isolation = self.isolation();
        if isolation == ContainerIsolation::HostProcess {
            return None;
        }
        let host = node.build();
        let images = Image::of_pod(self.spec, self.pod_context.eval_context.facts);
        let unfit = images.iter().flatten().find_map(|image| {
            let versions = image.versions.as_ref()?;
            let is_reported = versions.is_certain() && !self.is_isolation_in_doubt()
                || kubelet_messages.is_wrong_build()
                || kubelet_messages.is_wrong_platform();
            (versions.fail_on(host?, isolation) && is_reported).then_some((image.text, versions))
        });
        let of_node = match (host, host.and_then(Build::release)) {
            (Some(host), Some(release)) => format!("{} ({host}, {})", node.name, release.product),
            (Some(host), None) => format!("{} ({host})", node.name),
            (None, _) => node.name.clone(),
        };
        let (message, advice) = match unfit {
            Some((image, versions)) => (
                format!(
                    "its image {image} is for {}, which {of_node} does not run",
                    any_of(versions)
                ),
                build_advice(versions, isolation),
            ),
            None if kubelet_messages.is_wrong_build() => (
                format!(
                    "one of its images is for another Windows build than {of_node}, as its kubelet reports"
                ),
                format!("use an image for that build, or select the image's with {BUILD_LABEL}"),
            ),
            None => return None,
        };
        Some((PodProblem::Build, message, self.recreate_advice(&advice)))
    }

    /// Whether the pod names an unknown RuntimeClass, which may use Hyper-V isolation: that runs older images.
    fn is_isolation_in_doubt(&self) -> bool {
        self.spec.runtime_class_name.is_some() && self.class().ok().flatten().is_none()
    }

    /// What to write, and where: a pod cannot be changed, so its owner must create it again.
    fn recreate_advice(&self, what: &str) -> String {
        match self.owner {
            Some(owner) => format!("change the template of the {owner}: {what}"),
            None => format!("delete the pod, change it, and create it again: {what}"),
        }
    }
}

#[cfg(test)]
mod tests;
