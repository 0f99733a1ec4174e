//! Operating system inference: the evidence of a subject, strongest first, and the resulting verdict.

use super::scheduling::{AdmissionStage, constraints};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{ImageEvidence, Policy};
use crate::model::nodes::node::{
    BETA_OS_LABEL, BUILD_LABEL, Host, LABELS_OF_ONE_NODE, OS_LABEL, RESTRICTED_BUILD_LABEL,
};
use crate::model::nodes::node_affinity::{KnownNodeLabels as _, Match};
use crate::model::nodes::os_selectors::{os_of_label, os_of_terms};
use crate::model::objects::object::Object;
use crate::model::objects::pod::{Container, PodSpec, REQUIRED_TERMS};
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::cut;
use crate::model::windows::image::{ImageRef, OsHint, os_hint};
use crate::model::windows::image_facts::ImageFacts;
use crate::model::windows::os::{Evidence, EvidenceKind, Inference, Os, Verdict};

mod linux_signs;

/// Collects the evidence about a subject's operating system and determines the verdict.
///
/// The first evidence decides; if strong evidence disagrees, the verdict is Conflicting. Weak evidence (images, the
/// namespace's default) applies only without strong evidence, and proves nothing if it disagrees. A default of Windows
/// applies only to pods that some Windows node can run.
pub fn infer_os(subject: &Object<'_>, facts: &Facts, policy: &Policy) -> Inference {
    let Some(pod) = subject.pod() else {
        return Inference {
            verdict: Verdict::Unknown,
            evidence: Vec::new(),
        };
    };
    let mut signs = OsEvidence::of(subject);
    signs.of_os_name(pod);
    signs.of_os_labels(pod);
    signs.of_namespace_selector(subject, facts);
    signs.of_node_labels(pod, facts);
    signs.of_affinity(pod, facts);
    signs.of_runtime_class(pod, facts);
    signs.of_host_process(pod);
    if signs.evidence.is_empty() {
        signs.of_weak_evidence(subject, pod, facts, policy);
    }
    let evidence = signs.evidence;
    Inference {
        verdict: weigh(&evidence),
        evidence,
    }
}

/// Whether a known Windows node or pool matches what the pod requires of its node; true if no nodes are known.
///
/// Taints do not count: placement adds the tolerations of a Windows pod.
fn may_run_on_windows(subject: &Object<'_>, facts: &Facts) -> bool {
    if !facts.knows_nodes {
        return true;
    }
    let Some(constraints) = constraints(subject, facts, AdmissionStage::Merged) else {
        return false;
    };
    let bound_to = subject.pod().and_then(|pod| pod.node_name.as_deref());
    let matches = |host: &Host| {
        bound_to.is_none_or(|node| host.node_name() == Some(node)) && constraints.matches(host) != Match::No
    };
    if bound_to.is_some() || constraints.name_any(&LABELS_OF_ONE_NODE) {
        facts.hosts().iter().chain(&facts.pools).any(matches)
    } else {
        facts.sorts().chain(&facts.pools).any(matches)
    }
}

/// What the images of a pod show in addition to evidence.
struct ImageSigns {
    /// They contradict each other or what created the pod: no weak evidence applies.
    disagree: bool,
    /// One of them is for Linux only, by its registry or by its name.
    has_linux: bool,
}

fn weigh(evidence: &[Evidence]) -> Verdict {
    let Some(first) = evidence.first() else {
        return Verdict::Unknown;
    };
    let mut strong = evidence.iter().filter(|e| e.kind.is_strong());
    if strong.any(|e| e.os != first.os) {
        return Verdict::Conflicting;
    }
    match first.os {
        Os::Windows => Verdict::Windows,
        Os::Linux => Verdict::Linux,
    }
}

struct OsEvidence {
    spec: Path,
    evidence: Vec<Evidence>,
}

impl OsEvidence {
    /// None yet, of this object.
    fn of(subject: &Object<'_>) -> Self {
        OsEvidence {
            spec: subject.spec_path(),
            evidence: Vec::new(),
        }
    }

    fn add(&mut self, kind: EvidenceKind, path: Path, value: impl Into<String>, os: Os) {
        /// Longer than any valid label value. An image name may be longer; its beginning is sufficient.
        const LONGEST: usize = 259;
        let mut value = value.into();
        if value.len() > LONGEST {
            value = cut(&value, LONGEST).into_owned();
        }
        self.evidence.push(Evidence {
            path,
            value,
            kind,
            os,
        });
    }

    /// What applies only without strong evidence: images, the statement of a file's author, the namespace's default.
    fn of_weak_evidence(&mut self, subject: &Object<'_>, pod: &PodSpec<'_>, facts: &Facts, policy: &Policy) {
        let by_images = match policy.image_evidence {
            // They are not evidence, but a default does not apply against a Linux image.
            ImageEvidence::Disabled => ImageSigns {
                has_linux: policy.default_os == Some(Os::Windows)
                    && OsEvidence::of(subject).of_images(subject, pod, facts).has_linux,
                disagree: false,
            },
            ImageEvidence::Names | ImageEvidence::Registry => self.of_images(subject, pod, facts),
        };
        let is_for_linux = by_images.has_linux || linux_signs::is_of_kubevirt(subject, pod);
        if self.evidence.is_empty() && !by_images.disagree && !is_for_linux {
            self.of_absent_runtime_class(subject, pod, facts);
        }
        if let Some(os) = subject.context.stated_os.filter(|_| self.evidence.is_empty()) {
            let value = format!("{} (--os)", os.label());
            self.add(EvidenceKind::Stated, self.spec.clone(), value, os);
        }
        let applies = |os: &Os| {
            !by_images.disagree
                && (*os == Os::Linux
                    || (!by_images.has_linux
                        && !linux_signs::is_of_kubevirt(subject, pod)
                        && may_run_on_windows(subject, facts)))
        };
        if let Some(os) = policy.default_os.filter(applies) {
            let value = format!("{} (the policy's default)", os.label());
            let path = Path::of(&["metadata", "namespace"]);
            self.add(EvidenceKind::Namespace, path, value, os);
        }
    }

    fn of_os_name(&mut self, pod: &PodSpec<'_>) {
        if let Some((name, os)) = pod
            .os_name()
            .and_then(|name| Some((name, Os::parse_lenient(name)?)))
        {
            let path = self.spec.clone().fields(&["os", "name"]);
            self.add(EvidenceKind::OsName, path, name, os);
        }
    }

    fn of_os_labels(&mut self, pod: &PodSpec<'_>) {
        let selector = &pod.node_selector;
        for key in [OS_LABEL, BETA_OS_LABEL] {
            if let Some((value, os)) = selector.get(key).and_then(|v| Some((v, Os::parse_lenient(v)?))) {
                self.add(EvidenceKind::NodeSelector, self.selector_path(key), &**value, os);
            }
        }
    }

    /// The default node selector of the namespace, which the API server adds to the pods of a template.
    fn of_namespace_selector(&mut self, subject: &Object<'_>, facts: &Facts) {
        for (key, value) in facts.node_selector_for(subject).into_iter().flatten() {
            if let Some(os) = os_of_label(key, value, &facts.node_labels) {
                let path = Path::of(&["metadata", "namespace"]);
                let value = format!("{} (default node selector {key}={value})", subject.namespace);
                self.add(EvidenceKind::NamespaceNodeSelector, path, value, os);
            }
        }
    }

    fn of_node_labels(&mut self, pod: &PodSpec<'_>, facts: &Facts) {
        for (key, value) in &pod.node_selector {
            if **key != *OS_LABEL
                && **key != *BETA_OS_LABEL
                && let Some(os) = os_of_label(key, value, &facts.node_labels)
            {
                self.add(EvidenceKind::NodeLabel, self.selector_path(key), &**value, os);
            }
        }
    }

    fn selector_path(&self, key: &str) -> Path {
        self.spec.clone().field("nodeSelector").key(key)
    }

    fn of_affinity(&mut self, pod: &PodSpec<'_>, facts: &Facts) {
        let terms = pod.required_terms();
        let Some((os, t, e)) = os_of_terms(terms, &pod.node_selector, &facts.node_labels) else {
            return;
        };
        let Some(expression) = terms.get(t).and_then(|term| term.match_expressions.get(e)) else {
            return;
        };
        let values: Vec<&str> = expression.values.iter().map(|value| &**value).collect();
        let value = format!(
            "{} {} [{}]",
            expression.key,
            expression.operator,
            values.join(", ")
        );
        let path = self
            .spec
            .clone()
            .fields(REQUIRED_TERMS)
            .item(t)
            .field("matchExpressions")
            .item(e);
        self.add(EvidenceKind::NodeAffinity, path, value, os);
    }

    fn of_runtime_class(&mut self, pod: &PodSpec<'_>, facts: &Facts) {
        let Some(name) = &pod.runtime_class_name else {
            return;
        };
        let Some(class) = facts.runtime_classes.get(&**name) else {
            return;
        };
        let by_os = [OS_LABEL, BETA_OS_LABEL, BUILD_LABEL, RESTRICTED_BUILD_LABEL];
        let known = by_os
            .iter()
            .find_map(|key| os_of_label(key, class.node_selector.get(*key)?, &[]));
        let by_pool = || {
            class
                .node_selector
                .iter()
                .find_map(|(key, value)| os_of_label(key, value, &facts.node_labels))
        };
        // Only Windows nodes have such a handler, even if the class does not select them.
        let by_handler = || class.is_for_windows_by_handler(name).then_some(Os::Windows);
        let Some(os) = known.or_else(by_pool).or_else(by_handler) else {
            return;
        };
        let path = self.spec.clone().field("runtimeClassName");
        self.add(EvidenceKind::RuntimeClass, path.clone(), &**name, os);
        // No node matches both: the pods of a contradictory class would stay Pending.
        let other = class.node_selector.iter().find_map(|(key, value)| {
            let other = os_of_label(key, value, &facts.node_labels).filter(|other| *other != os)?;
            Some((format!("{name}: {key}={value}"), other))
        });
        if let Some((value, other)) = other {
            self.add(EvidenceKind::RuntimeClass, path, value, other);
        }
    }

    /// A template that is stored before its RuntimeClass is evaluated by nobody when the class appears. Pods without their class
    /// are refused by the API server.
    fn of_absent_runtime_class(&mut self, subject: &Object<'_>, pod: &PodSpec<'_>, facts: &Facts) {
        let Some(name) = &pod.runtime_class_name else {
            return;
        };
        let is_absent = subject.kind != Kind::Pod && !facts.runtime_classes.contains_key(&**name);
        if is_absent && facts.windows_class_names.contains(&**name) {
            let path = self.spec.clone().field("runtimeClassName");
            self.add(EvidenceKind::AbsentRuntimeClass, path, &**name, Os::Windows);
        }
    }

    fn of_host_process(&mut self, pod: &PodSpec<'_>) {
        const OPTION: &[&str] = &["securityContext", "windowsOptions", "hostProcess"];
        let Some((list, index, container)) = pod.visit_containers().find(|(_, _, c)| pod.is_host_process(c))
        else {
            return;
        };
        let own = container
            .windows_options()
            .and_then(|options| options.host_process)
            .is_some();
        let path = if own {
            self.spec
                .clone()
                .field(list.field())
                .named_item(index, &container.name)
                .fields(OPTION)
        } else {
            self.spec.clone().fields(OPTION)
        };
        self.add(EvidenceKind::HostProcess, path, "true", Os::Windows);
    }

    /// Adds the evidence of the images.
    ///
    /// An image that exists for Windows only decides, regardless of the rest of the pod: a rule reports the rest. The
    /// tag of any other image applies only if no image and no field of the pod is for Linux. Of Linux images, only the
    /// registry's answer makes a pod a Linux pod. What the registry lists takes precedence over the name; an image that
    /// it lists for both systems says nothing.
    fn of_images(&mut self, subject: &Object<'_>, pod: &PodSpec<'_>, facts: &Facts) -> ImageSigns {
        let (mut certain, mut by_tag, mut linux) = (None, None, None);
        let mut has_linux_image = false;
        for (list, index, container) in pod.visit_containers() {
            let Some(image) = &container.image else { continue };
            let found = (list, index, container, image);
            match image_sign(container, image, facts) {
                ImageSign::Windows => _ = certain.get_or_insert(found),
                ImageSign::WindowsTag => _ = by_tag.get_or_insert(found),
                ImageSign::Linux => {
                    linux.get_or_insert(found);
                    has_linux_image = true;
                }
                ImageSign::LinuxName => has_linux_image = true,
                ImageSign::None => {}
            }
        }
        let contradicted = has_linux_image || linux_signs::is_of_kubevirt(subject, pod);
        let decides = match (certain, by_tag, linux) {
            (None, Some(_), _) if contradicted => {
                return ImageSigns {
                    disagree: true,
                    has_linux: has_linux_image,
                };
            }
            (None, Some(_), _) if linux_signs::has_linux_field(pod) => None,
            (Some(windows), _, _) | (None, Some(windows), _) => Some((windows, Os::Windows)),
            (None, None, linux) => linux.map(|linux| (linux, Os::Linux)),
        };
        if let Some(((list, index, container, image), os)) = decides {
            let item = self.spec.clone().field(list.field());
            let path = item.named_item(index, &container.name).field("image");
            let known = facts
                .image_of(container)
                .filter(|known| known.contents().is_some());
            let value = known.map_or_else(|| image.to_string(), |known| of_registry(image, known));
            self.add(EvidenceKind::Image, path, value, os);
        }
        ImageSigns {
            disagree: false,
            has_linux: has_linux_image,
        }
    }
}

/// What one image shows.
enum ImageSign {
    /// It is for Windows only, by its registry or its repository.
    Windows,
    /// Its tag says Windows.
    WindowsTag,
    /// It is for Linux only, by its registry.
    Linux,
    /// It is for Linux only, by its name.
    LinuxName,
    None,
}

fn image_sign(container: &Container<'_>, image: &str, facts: &Facts) -> ImageSign {
    if let Some(contents) = facts.image_of(container).and_then(ImageFacts::contents) {
        return match contents.only_os() {
            Some(Os::Windows) => ImageSign::Windows,
            Some(Os::Linux) => ImageSign::Linux,
            None => ImageSign::None,
        };
    }
    match ImageRef::parse(image).map_or(OsHint::None, |image| os_hint(&image)) {
        OsHint::WindowsOnlyRepository => ImageSign::Windows,
        OsHint::WindowsTagToken(_) => ImageSign::WindowsTag,
        OsHint::LinuxTag(_) | OsHint::LinuxOnlyRepository | OsHint::DotnetLinuxOnly => ImageSign::LinuxName,
        OsHint::None => ImageSign::None,
    }
}

/// An image with the digest and the time of what its registry reports: `app:1 (registry: sha256:0123456789ab, …)`.
fn of_registry(image: &str, known: &ImageFacts) -> String {
    /// The rest has a digest and a time.
    const LONGEST_NAME: usize = 190;
    format!("{} (registry: {known})", cut(image, LONGEST_NAME))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use jiff::Timestamp;
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::model::cluster::facts::RuntimeClassFacts;
    use crate::model::nodes::node::Taint;
    use crate::model::objects::object::ReviewStage;
    use crate::model::windows::build::Build;
    use crate::model::windows::image_facts::ImageVariant;

    /// The verdict on a pod with these images; if there are several, the first is that of an init container.
    fn verdict_of(images: &[&str], over: &serde_json::Value, facts: &Facts, policy: &Policy) -> Verdict {
        let container = |(n, image): (usize, &&str)| json!({"name": format!("c{n}"), "image": image});
        let mut containers: Vec<_> = images.iter().enumerate().map(container).collect();
        let init: Vec<_> = if containers.len() > 1 {
            containers.drain(..1).collect()
        } else {
            Vec::new()
        };
        let mut pod =
            json!({"metadata": {"name": "a"}, "spec": {"initContainers": init, "containers": containers}});
        json_patch::merge(&mut pod, over);
        let pod = pod.to_string();
        infer_os(
            &Object::parse(Kind::Pod, &pod, ReviewStage::Written).unwrap(),
            facts,
            policy,
        )
        .verdict
    }

    #[test]
    fn images_must_agree_unless_one_is_certain() {
        use Verdict::{Linux, Unknown, Windows};
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let windows_by_name = "corp.example/windows:1.0-ltsc2022";
        for (image, systems) in [
            ("asked/windows:1", &["windows", "windows"][..]),
            ("asked/linux:1", &["linux"]),
            ("asked/both:1", &["linux", "windows"]),
            ("asked/both:1-ltsc2022", &["linux", "windows"]),
            ("asked/linux:1-ltsc2022", &["linux"]),
            ("asked/windows:1-alpine", &["windows"]),
            (windows_by_name, &[]),
        ] {
            let variants = systems.iter().map(|os| ImageVariant::new(os, "amd64", ""));
            let known = ImageFacts::of(variants.collect(), Timestamp::UNIX_EPOCH);
            facts.images.insert(image.to_owned(), Arc::new(known));
        }
        let missing = ImageFacts {
            looked_up: Timestamp::UNIX_EPOCH,
            found: None,
        };
        facts
            .images
            .insert("asked/missing:1-ltsc2022".to_owned(), Arc::new(missing));
        let core = "mcr.microsoft.com/windows/servercore:ltsc2022";
        let tagged = "registry.corp/vm/windows-server:ltsc2022";
        for (images, expected) in [
            (&[core][..], Windows),
            (&[tagged], Windows),
            (&["registry.corp/app:1.0", tagged], Windows),
            (&[tagged, "registry.corp/app:1.0"], Windows),
            // Evidence of both systems, in one name or between containers.
            (&["corp.example/x:1.0-alpine-ltsc2022"], Unknown),
            (&["corp.example/x:1.0-alpine-ltsc2022", tagged], Windows),
            (&["busybox:1.36", tagged], Unknown),
            (&[tagged, "nginx:1.29-alpine"], Unknown),
            (&[tagged, "corp.example/x:1.0-debian-12-r3"], Unknown),
            (&[tagged, "mcr.microsoft.com/dotnet/aspnet:8.0"], Unknown),
            (&["asked/linux:1", tagged], Unknown),
            (&["nginx:1.29-alpine"], Unknown),
            (&["asked/linux:1"], Linux),
            // What the registry lists takes precedence over the name; without a platform, the name is all there is.
            (&["asked/both:1"], Unknown),
            (&["asked/both:1-ltsc2022"], Unknown),
            (&["asked/both:1", tagged], Windows),
            (&["asked/linux:1-ltsc2022"], Linux),
            (&["asked/windows:1-alpine"], Windows),
            (&["asked/missing:1-ltsc2022"], Windows),
            (&[windows_by_name], Windows),
            // An image that exists for Windows only decides; a rule reports the other image.
            (&[core, "nginx:1.29-alpine"], Windows),
            (
                &["busybox:1.36", "mcr.microsoft.com/dotnet/framework/aspnet:4.8"],
                Windows,
            ),
            (&["asked/linux:1", "asked/windows:1"], Windows),
            (&["corp.example/dotnet/framework/aspnet:4.8"], Unknown),
            (&["calico/windows:v3.24.5"], Windows),
            (&["calico/node-windows:v3.28.1"], Windows),
        ] {
            let got = verdict_of(images, &json!({}), &facts, &Policy::standalone());
            assert_eq!(got, expected, "{images:?}");
            // A default applies if images give no evidence, but not if they disagree or one is for Linux only.
            let policy = Policy {
                default_os: Some(Os::Windows),
                ..Policy::standalone()
            };
            let by_default = match (expected, images) {
                (Unknown, ["nginx:1.29-alpine"]) => Unknown,
                (Unknown, [_]) => Windows,
                (expected, _) => expected,
            };
            let got = verdict_of(images, &json!({}), &facts, &policy);
            assert_eq!(got, by_default, "by default: {images:?}");
        }
    }

    #[test]
    fn evidence_of_a_registry_has_its_digest_and_time() {
        let evidence = |image: &str, digest: &str| {
            let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
            let looked_up = "2026-01-01T12:34:56Z".parse().unwrap();
            let mut known = ImageFacts::of(vec![ImageVariant::new("windows", "amd64", "")], looked_up);
            digest.clone_into(&mut known.found.as_mut().unwrap().digest);
            facts.images.insert(image.to_owned(), Arc::new(known));
            let pod = json!({"spec": {"containers": [{"name": "web", "image": image}]}}).to_string();
            let subject = Object::parse(Kind::Pod, &pod, ReviewStage::Written).unwrap();
            let inference = infer_os(&subject, &facts, &Policy::standalone());
            inference.evidence[0].to_string()
        };
        assert_eq!(
            evidence("corp.example/app:1", "sha256:0123456789abcdef"),
            "spec.containers[0].image=corp.example/app:1 (registry: sha256:0123456789ab, 2026-01-01T12:34Z)"
        );
        let long = evidence(
            &format!("corp.example/{}:1", "a".repeat(250)),
            "sha256:0123456789abcdef",
        );
        assert!(
            long.ends_with("… (registry: sha256:0123456789ab, 2026-01-01T12:34Z)"),
            "{long}"
        );
    }

    #[test]
    fn a_virtual_machine_with_a_windows_disk_is_no_windows_pod() {
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let disk = "registry.corp/vm/windows-server:ltsc2022";
        let compute = json!({"spec": {"containers": [
            {"name": "compute", "image": "registry.corp/kubevirt/virt-launcher:v1.6.0",
             "resources": {"limits": {"devices.kubevirt.io/kvm": "1"}}},
            {"name": "volumecontainerdisk", "image": disk},
        ]}});
        let owned = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "1", "controller": true},
        ]}});
        let hugepages = json!({"spec": {"containers": [
            {"name": "c0", "image": disk, "resources": {"limits": {"hugepages-2Mi": "2Gi"}}},
        ]}});
        let policy = Policy::standalone();
        for over in [&compute, &owned, &hugepages] {
            assert_eq!(
                verdict_of(&[disk], over, &facts, &policy),
                Verdict::Unknown,
                "{over}"
            );
        }
        // A Windows image with Linux fields and no selector is a main use case of Transom.
        let core = "mcr.microsoft.com/windows/servercore:ltsc2022";
        let fields = json!({"spec": {"hostPID": true, "securityContext": {"runAsUser": 1000}}});
        assert_eq!(verdict_of(&[core], &fields, &facts, &policy), Verdict::Windows);
        let user = json!({"spec": {"securityContext": {"runAsUser": 1000, "fsGroup": 1}}});
        assert_eq!(verdict_of(&[disk], &user, &facts, &policy), Verdict::Windows);
        assert_eq!(verdict_of(&[disk], &fields, &facts, &policy), Verdict::Unknown);
        // A default of the namespace applies if fields silence a tag; KubeVirt's pods are Linux pods regardless.
        let policy = Policy {
            default_os: Some(Os::Windows),
            ..Policy::standalone()
        };
        assert_eq!(verdict_of(&[disk], &hugepages, &facts, &policy), Verdict::Windows);
        assert_eq!(verdict_of(&[disk], &compute, &facts, &policy), Verdict::Unknown);
        assert_eq!(verdict_of(&[disk], &owned, &facts, &policy), Verdict::Unknown);
    }

    #[test]
    fn a_runtime_class_says_what_its_pods_are_and_may_contradict_itself() {
        let selects = |labels: &[(&str, &str)]| RuntimeClassFacts {
            node_selector: (labels.iter())
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..RuntimeClassFacts::default()
        };
        let pod =
            r#"{"spec": {"runtimeClassName": "class", "containers": [{"name": "web", "image": "web"}]}}"#;
        let subject = Object::parse(Kind::Pod, pod, ReviewStage::Written).unwrap();
        let verdict = |labels: &[(&str, &str)]| {
            let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
            facts.runtime_classes.insert("class".to_owned(), selects(labels));
            infer_os(&subject, &facts, &Policy::standalone()).verdict
        };
        let handled = |handler: &str, labels: &[(&str, &str)]| {
            let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
            let class = RuntimeClassFacts {
                handler: handler.to_owned(),
                ..selects(labels)
            };
            facts.runtime_classes.insert("class".to_owned(), class);
            infer_os(&subject, &facts, &Policy::standalone()).verdict
        };
        assert_eq!(handled("runhcs-wcow-process", &[]), Verdict::Windows);
        assert_eq!(
            handled("RUNHCS-wcow-hypervisor-20348", &[("disk", "ssd")]),
            Verdict::Windows
        );
        assert_eq!(handled("runhcs-lcow", &[]), Verdict::Unknown);
        assert_eq!(handled("runsc", &[]), Verdict::Unknown);
        // The selector of the class is stronger evidence than its handler.
        assert_eq!(
            handled("runhcs-wcow-process", &[(OS_LABEL, "linux")]),
            Verdict::Linux
        );
        let (windows, linux) = ((OS_LABEL, "windows"), (OS_LABEL, "linux"));
        let build = (BUILD_LABEL, "10.0.20348");
        assert_eq!(verdict(&[windows, build, ("disk", "ssd")]), Verdict::Windows);
        assert_eq!(verdict(&[linux, ("disk", "ssd")]), Verdict::Linux);
        assert_eq!(verdict(&[linux, build]), Verdict::Conflicting);
        assert_eq!(
            verdict(&[windows, (BETA_OS_LABEL, "linux")]),
            Verdict::Conflicting
        );
    }

    #[test]
    fn a_default_of_windows_applies_only_if_a_windows_node_or_pool_can_run_the_pod() {
        let host = |name: &str, pool: &str| Host {
            name: name.to_owned(),
            build: Some(Build::new(20348)),
            taints: vec![Taint::no_schedule("corp.example/locked", "")],
            labels: BTreeMap::from([
                (OS_LABEL.to_owned(), "windows".to_owned()),
                ("agentpool".to_owned(), pool.to_owned()),
                ("kubernetes.io/hostname".to_owned(), name.to_owned()),
            ])
            .into(),
            ..Host::default()
        };
        let mut nodes = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        nodes.knows_nodes = true;
        let without_windows = nodes.clone();
        nodes.add_host(host("w1", "win"));
        nodes.add_host(host("w2", "win"));
        let mut with_pool = without_windows.clone();
        with_pool.pools.push(Host {
            name: "later".to_owned(),
            may_be_at_zero: true,
            labels: BTreeMap::from([("agentpool".to_owned(), "win".to_owned())]).into(),
            ..Host::default()
        });
        let unknown = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let terms = |term: serde_json::Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [term]}}}})
        };
        let named = |name: &str| {
            terms(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}))
        };
        let in_pool = |pool: &str| {
            terms(json!({"matchExpressions": [{"key": "agentpool", "operator": "In", "values": [pool]}]}))
        };
        let (yes, no) = (Verdict::Windows, Verdict::Unknown);
        for (spec, image, on_nodes, at_zero) in [
            (json!({}), "corp.example/app:1", yes, yes),
            (
                json!({"nodeSelector": {"agentpool": "win"}}),
                "corp.example/app:1",
                yes,
                yes,
            ),
            (
                json!({"nodeSelector": {"agentpool": "linux"}}),
                "corp.example/app:1",
                no,
                no,
            ),
            (
                json!({"nodeSelector": {"kubernetes.io/hostname": "w2"}}),
                "corp.example/app:1",
                yes,
                no,
            ),
            (
                json!({"nodeSelector": {"kubernetes.io/hostname": "l1"}}),
                "corp.example/app:1",
                no,
                no,
            ),
            (named("w2"), "corp.example/app:1", yes, no),
            (named("l1"), "corp.example/app:1", no, no),
            (in_pool("win"), "corp.example/app:1", yes, yes),
            (in_pool("linux"), "corp.example/app:1", no, no),
            (json!({"nodeName": "w2"}), "corp.example/app:1", yes, no),
            (json!({"nodeName": "l1"}), "corp.example/app:1", no, no),
            (json!({}), "registry.k8s.io/coredns/coredns:v1.12.0", no, no),
            (json!({}), "nginx:1.29", no, no),
        ] {
            let policy = Policy {
                default_os: Some(Os::Windows),
                ..Policy::standalone()
            };
            let verdict = |facts: &Facts| verdict_of(&[image], &json!({ "spec": spec }), facts, &policy);
            assert_eq!(verdict(&nodes), on_nodes, "{spec} {image}");
            // That an image is for Linux keeps the default away even if images are not evidence.
            let no_evidence = Policy {
                image_evidence: ImageEvidence::Disabled,
                ..policy.clone()
            };
            let without_images = verdict_of(&[image], &json!({ "spec": spec }), &nodes, &no_evidence);
            assert_eq!(without_images, on_nodes, "images disabled: {spec} {image}");
            assert_eq!(verdict(&with_pool), at_zero, "at zero: {spec} {image}");
            assert_eq!(verdict(&without_windows), no, "without Windows: {spec} {image}");
            // Without a list of nodes, only the image says that the pod is for Linux.
            let by_image = if image.starts_with("corp") { yes } else { no };
            assert_eq!(verdict(&unknown), by_image, "unknown nodes: {spec} {image}");
        }
    }
}
