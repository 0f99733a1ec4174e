//! The pods that `kubectl debug node/…` creates: their shape, and the fields that its profiles set.
//!
//! kubectl uses the credentials of its caller, so the requester does not identify such a pod. Instead, only the exact
//! shape that kubectl creates is recognised (k8s.io/kubectl, `pkg/cmd/debug`: `generateNodeDebugPod` and
//! `profiles.go`), and only the fields of its profiles are treated differently: fields that Windows ignores, and that a
//! user of kubectl cannot omit.

use super::pod::{ContainerList, PodSpec};
use super::resources::Meta;
use crate::model::syntax::path::{Path, Segment};

/// The fields of a container's securityContext that profiles set. `runAsUser` is not one of them.
const OF_CONTAINER: [&str; 5] = [
    "privileged",
    "capabilities",
    "runAsNonRoot",
    "allowPrivilegeEscalation",
    "seccompProfile",
];
/// The host's namespaces. Profiles set all three or none.
const OF_POD: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];
/// The length of the suffix of the name that kubectl generates, in characters.
const SUFFIX: usize = 5;

/// Whether a pod has the label that kubectl sets. This is the cheapest part of [`container_of`], which checks the rest.
pub fn is_labelled(meta: &Meta<'_>) -> bool {
    let managed_by = meta.labels.get("app.kubernetes.io/managed-by");
    managed_by.is_some_and(|by| **by == *"kubectl-debug")
}

/// The index of the container that kubectl created, if a Pod has the shape of `kubectl debug node/…`. `is_authors`
/// distinguishes the author's fields from those that admission added.
pub fn container_of(meta: &Meta<'_>, pod: &PodSpec<'_>, is_authors: impl Fn(&Path) -> bool) -> Option<usize> {
    if !is_labelled(meta) || !meta.owner_references.is_empty() {
        return None;
    }
    let node = pod.node_name.as_deref().filter(|node| !node.is_empty())?;
    let suffix = meta.name.strip_prefix("node-debugger-")?.strip_prefix(node)?;
    let suffix = suffix.strip_prefix('-')?;
    let is_suffix = suffix.len() == SUFFIX
        && suffix
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let tolerates_everything = (pod.tolerations.iter())
        .any(|t| t.operator.as_deref() == Some("Exists") && t.key.as_deref().is_none_or(str::is_empty));
    if !is_suffix || !tolerates_everything || pod.restart_policy.as_deref() != Some("Never") {
        return None;
    }
    let mut of_author = pod.visit_containers().filter(|(list, index, container)| {
        let at = Path::of(&["spec", list.field()]);
        is_authors(&at.named_item(*index, &container.name))
    });
    match (of_author.next(), of_author.next()) {
        (Some((ContainerList::App, index, _)), None) => Some(index),
        _ => None,
    }
}

/// Whether a profile of kubectl sets the field at a path of a pod with this container ([`container_of`]).
pub fn is_written_by_kubectl(pod: &PodSpec<'_>, container: usize, path: &Path) -> bool {
    match path.segments() {
        [Segment::Field("spec"), Segment::Field(field)] if OF_POD.contains(field) => {
            pod.host_network.0 && pod.host_pid.0 && pod.host_ipc.0
        }
        [
            Segment::Field("spec"),
            Segment::Field("containers"),
            Segment::Item(index, _),
            Segment::Field("securityContext"),
            Segment::Field(field),
            ..,
        ] => *index == container && OF_CONTAINER.contains(field),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made_by_kubectl() -> Value {
        json!({
            "metadata": {"name": "node-debugger-win-1-x7k2p", "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}},
            "spec": {
                "nodeName": "win-1", "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
                "hostPID": true, "hostIPC": true, "hostNetwork": true,
                "containers": [{"name": "debugger", "image": "a"}],
            },
        })
    }

    fn container(pod: &Value, is_authors: fn(&Path) -> bool) -> Option<usize> {
        let (meta, spec) = (pod["metadata"].to_string(), pod["spec"].to_string());
        container_of(
            &serde_json::from_str(&meta).unwrap(),
            &serde_json::from_str(&spec).unwrap(),
            is_authors,
        )
    }

    #[test]
    fn only_the_shape_that_kubectl_makes_is_a_node_debugger() {
        let pod = made_by_kubectl();
        assert_eq!(container(&pod, |_| true), Some(0));
        for (pointer, value) in [
            ("/metadata/labels", json!({})),
            ("/metadata/labels/app.kubernetes.io~1managed-by", json!("helm")),
            ("/metadata/name", json!("node-debugger")),
            ("/metadata/name", json!("node-debugger-win-2-x7k2p")),
            ("/metadata/name", json!("node-debugger-win-1")),
            ("/metadata/name", json!("node-debugger-win-1-x7k2")),
            ("/metadata/name", json!("node-debugger-win-1-x7k2pp")),
            ("/metadata/name", json!("x-node-debugger-win-1-x7k2p")),
            ("/metadata/generateName", json!("node-debugger-win-1-")),
            (
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "A", "name": "a"}]),
            ),
            ("/spec/nodeName", json!("")),
            ("/spec/nodeName", json!("win-2")),
            ("/spec/nodeName", Value::Null),
            ("/spec/restartPolicy", json!("Always")),
            ("/spec/restartPolicy", Value::Null),
            ("/spec/tolerations", json!([])),
            ("/spec/tolerations", json!([{"key": "os", "operator": "Exists"}])),
            ("/spec/tolerations", json!([{"operator": "Equal"}])),
            (
                "/spec/containers",
                json!([{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]),
            ),
            ("/spec/containers", json!([])),
            ("/spec/initContainers", json!([{"name": "a", "image": "a"}])),
        ] {
            let mut other = pod.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            other.pointer_mut(parent).unwrap()[field.replace("~1", "/")] = value.clone();
            let expected = (pointer == "/metadata/generateName").then_some(0);
            assert_eq!(container(&other, |_| true), expected, "{pointer} {value}");
        }
    }

    #[test]
    fn containers_that_an_admission_added_are_not_counted() {
        let mut pod = made_by_kubectl();
        pod["spec"]["containers"] =
            json!([{"name": "sidecar", "image": "s"}, {"name": "debugger", "image": "a"}]);
        pod["spec"]["initContainers"] = json!([{"name": "sidecar-init", "image": "s"}]);
        assert_eq!(container(&pod, |_| true), None);
        assert_eq!(container(&pod, |path| !path.named().contains("sidecar")), Some(1));
        assert_eq!(container(&pod, |_| false), None);
    }

    #[test]
    fn only_what_profiles_write_is_kubectls() {
        let mut pod = made_by_kubectl();
        let spec = Path::of(&["spec"]);
        let context = |index: usize, fields: &[&'static str]| {
            let item = spec.clone().field("containers").named_item(index, "debugger");
            item.field("securityContext").fields(fields)
        };
        for (path, expected) in [
            (spec.clone().field("hostNetwork"), true),
            (spec.clone().field("hostPID"), true),
            (spec.clone().field("hostIPC"), true),
            (spec.clone().field("hostname"), false),
            (spec.clone().fields(&["securityContext", "runAsUser"]), false),
            (spec.clone().fields(&["securityContext", "runAsNonRoot"]), false),
            (context(0, &["privileged"]), true),
            (context(0, &["capabilities", "add"]), true),
            (context(0, &["runAsNonRoot"]), true),
            (context(0, &["allowPrivilegeEscalation"]), true),
            (context(0, &["seccompProfile"]), true),
            (context(0, &["runAsUser"]), false),
            (context(0, &["runAsGroup"]), false),
            (context(1, &["privileged"]), false),
        ] {
            let json = pod["spec"].to_string();
            let pod: PodSpec<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(is_written_by_kubectl(&pod, 0, &path), expected, "{path}");
        }
        // All three namespaces or none.
        pod["spec"]["hostIPC"] = false.into();
        let json = pod["spec"].to_string();
        let pod: PodSpec<'_> = serde_json::from_str(&json).unwrap();
        assert!(!is_written_by_kubectl(&pod, 0, &spec.field("hostNetwork")));
    }
}
