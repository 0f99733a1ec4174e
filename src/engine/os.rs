//! Operating system inference: every sign of a subject, strongest first, and the verdict that they add up to.

use crate::model::facts::Facts;
use crate::model::image::{ImageRef, OsHint, os_hint};
use crate::model::node::{BETA_OS_LABEL, BUILD_LABEL, OS_LABEL, TRUSTED_BUILD_LABEL};
use crate::model::os::{Evidence, EvidenceKind, Inference, Os, Verdict};
use crate::model::path::Path;
use crate::model::pod::{PodSpec, REQUIRED_TERMS};
use crate::model::policy::Policy;
use crate::model::selection::{os_of_label, os_of_terms};
use crate::model::subject::Subject;
use crate::model::text::cut;

/// Collects the evidence about a subject's operating system and draws the verdict.
///
/// The first sign that speaks decides; where strong signs disagree the verdict is Conflicting. Weak signs (an image,
/// the namespace's default) are heard only where no strong one speaks.
pub fn infer(subject: &Subject<'_>, facts: &Facts, policy: &Policy) -> Inference {
    let Some(pod) = subject.pod() else {
        return Inference {
            verdict: Verdict::Unknown,
            evidence: Vec::new(),
        };
    };
    let mut signs = Signs {
        spec: subject.spec_path(),
        evidence: Vec::new(),
    };
    signs.of_os_name(pod);
    signs.of_node_selector(pod, policy);
    signs.of_affinity(pod, policy);
    signs.of_runtime_class(pod, facts, policy);
    signs.of_host_process(pod);
    if signs.evidence.is_empty() {
        if policy.image_evidence {
            signs.of_images(pod, facts);
        }
        if let Some(os) = policy.namespace_default_os {
            let value = format!("{} (the policy's default)", os.label());
            signs.add(
                EvidenceKind::Namespace,
                Path::of(&["metadata", "namespace"]),
                value,
                os,
            );
        }
    }
    let evidence = signs.evidence;
    Inference {
        verdict: weigh(&evidence),
        evidence,
    }
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

struct Signs {
    spec: Path,
    evidence: Vec<Evidence>,
}

impl Signs {
    fn add(&mut self, kind: EvidenceKind, path: Path, value: impl Into<String>, os: Os) {
        /// Longer than any legal label value; an image name may be longer, and then its beginning tells enough.
        const LONGEST: usize = 259;
        let mut value = value.into();
        if value.len() > LONGEST {
            value = cut(&value, LONGEST).into_owned();
        }
        self.evidence.push(Evidence {
            kind,
            path,
            value,
            os,
        });
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

    fn of_node_selector(&mut self, pod: &PodSpec<'_>, policy: &Policy) {
        let selector = &pod.node_selector;
        let path = |signs: &Signs, key: &str| signs.spec.clone().field("nodeSelector").key(key);
        for key in [OS_LABEL, BETA_OS_LABEL] {
            if let Some((value, os)) = selector.get(key).and_then(|v| Some((v, Os::parse_lenient(v)?))) {
                self.add(EvidenceKind::NodeSelector, path(self, key), &**value, os);
            }
        }
        for (key, value) in selector {
            if **key != *OS_LABEL
                && **key != *BETA_OS_LABEL
                && let Some(os) = os_of_label(key, value, &policy.pool_labels)
            {
                self.add(EvidenceKind::PoolLabel, path(self, key), &**value, os);
            }
        }
    }

    fn of_affinity(&mut self, pod: &PodSpec<'_>, policy: &Policy) {
        let terms = pod.required_terms();
        let Some((os, t, e)) = os_of_terms(terms, &policy.pool_labels) else {
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

    fn of_runtime_class(&mut self, pod: &PodSpec<'_>, facts: &Facts, policy: &Policy) {
        let Some(name) = &pod.runtime_class_name else {
            return;
        };
        let Some(class) = facts.runtime_classes.get(&**name) else {
            return;
        };
        let by_os = [OS_LABEL, BETA_OS_LABEL, BUILD_LABEL, TRUSTED_BUILD_LABEL];
        let known = by_os
            .iter()
            .find_map(|key| os_of_label(key, class.node_selector.get(*key)?, &[]));
        let by_pool = || {
            class
                .node_selector
                .iter()
                .find_map(|(key, value)| os_of_label(key, value, &policy.pool_labels))
        };
        // Only Windows nodes have such a handler, whatever the class leaves unsaid.
        let by_handler = || class.is_for_windows_by_handler(name).then_some(Os::Windows);
        let Some(os) = known.or_else(by_pool).or_else(by_handler) else {
            return;
        };
        let path = self.spec.clone().field("runtimeClassName");
        self.add(EvidenceKind::RuntimeClass, path.clone(), &**name, os);
        // No node is for both: the pods of a class that contradicts itself would stay Pending.
        let other = class.node_selector.iter().find_map(|(key, value)| {
            let other = os_of_label(key, value, &policy.pool_labels).filter(|other| *other != os)?;
            Some((format!("{name}: {key}={value}"), other))
        });
        if let Some((value, other)) = other {
            self.add(EvidenceKind::RuntimeClass, path, value, other);
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

    /// One image that says Windows is enough: a pod with another for Linux runs nowhere, and a rule says so.
    fn of_images(&mut self, pod: &PodSpec<'_>, facts: &Facts) {
        let mut linux = None;
        for (list, index, container) in pod.visit_containers() {
            let Some(image) = &container.image else { continue };
            let verified = facts.images.get(&**image).and_then(|known| known.os);
            let named = || {
                let hint = os_hint(&ImageRef::parse(image).ok()?);
                let windows = matches!(hint, OsHint::WindowsOnlyRepository | OsHint::WindowsTagToken(_));
                windows.then_some(Os::Windows)
            };
            let Some(os) = verified.or_else(named) else {
                continue;
            };
            let path = || {
                let item = self
                    .spec
                    .clone()
                    .field(list.field())
                    .named_item(index, &container.name);
                item.field("image")
            };
            if os == Os::Windows {
                return self.add(EvidenceKind::Image, path(), &**image, os);
            }
            linux.get_or_insert_with(|| (path(), image));
        }
        if let Some((path, image)) = linux {
            self.add(EvidenceKind::Image, path, &**image, Os::Linux);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::model::facts::RuntimeClassFacts;
    use crate::model::subject::Stage;
    use crate::model::workload::Kind;

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
        let subject = Subject::parse(Kind::Pod, pod, Stage::Written).unwrap();
        let verdict = |labels: &[(&str, &str)]| {
            let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
            facts.runtime_classes.insert("class".to_owned(), selects(labels));
            infer(&subject, &facts, &Policy::standalone()).verdict
        };
        let handled = |handler: &str, labels: &[(&str, &str)]| {
            let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
            let class = RuntimeClassFacts {
                handler: handler.to_owned(),
                ..selects(labels)
            };
            facts.runtime_classes.insert("class".to_owned(), class);
            infer(&subject, &facts, &Policy::standalone()).verdict
        };
        assert_eq!(handled("runhcs-wcow-process", &[]), Verdict::Windows);
        assert_eq!(
            handled("RUNHCS-wcow-hypervisor-20348", &[("disk", "ssd")]),
            Verdict::Windows
        );
        assert_eq!(handled("runhcs-lcow", &[]), Verdict::Unknown);
        assert_eq!(handled("runsc", &[]), Verdict::Unknown);
        // What the class selects is said more clearly than what it runs.
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
}
