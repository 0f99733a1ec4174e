//! Symptoms of Windows pods that their status shows: pods that terminate past their grace period, CSI drivers without
//! csi-proxy, and errors of the Host Compute Service. Each with its cause and its remedy.

use jiff::{SignedDuration, Timestamp};

use super::TroubleText;
use super::status::PodRecord;
use crate::cluster::node::NodeView;
use crate::model::objects::pod::PodSpec;
use crate::scan::report::PodProblem;

/// How long after its deadline a terminating pod is reported.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// An error code of the Host Compute Service in a kubelet's message.
struct HostComputeError {
    code: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

/// Errors that the model does not explain otherwise. 0xc0370101 is a wrong build.
///
/// Source: Windows' `computecore` error codes, hcsshim `internal/hcs/errors.go`, microsoft/Windows-Containers#591.
static ERRORS: &[HostComputeError] = &[
    HostComputeError {
        code: "0xc0370102",
        cause: "the node cannot start a virtual machine for Hyper-V isolation: Hyper-V is not installed or not enabled",
        remedy: "enable Hyper-V and nested virtualization on the node, or use process isolation",
    },
    HostComputeError {
        code: "0xc0370106",
        cause: "the container exited during its start, because its image has a newer update revision (UBR) than the node",
        remedy: "install the update of the image on the node, or use an older image",
    },
    HostComputeError {
        code: "0xc0370109",
        cause: "the Host Compute Service did not answer in time: the node is overloaded, or many pods start at the same time",
        remedy: "reserve CPU and memory for the system on the node, and start fewer pods at a time",
    },
    HostComputeError {
        code: "0xc037010e",
        cause: "the Host Compute Service no longer has the container, because the node restarted or the service failed",
        remedy: "delete the pod; if it returns, restart the node",
    },
];

/// A pod on a Windows node that still exists after its grace period.
pub(super) fn terminating(record: &PodRecord, node: &NodeView, now: Timestamp) -> Option<TroubleText> {
    let deadline = record.deletion_deadline()?;
    if deadline.checked_add(PATIENCE).ok()? > now {
        return None;
    }
    let name = &node.name;
    if let Some(finalizer) = record.finalizers().first() {
        return Some((
            PodProblem::Terminating,
            format!("terminating since {deadline}: the finalizer {finalizer} is not removed"),
            "see why the controller of the finalizer does not remove it".to_owned(),
        ));
    }
    Some((
        PodProblem::Terminating,
        format!(
            "terminating past its grace period, which ended at {deadline}: the kubelet on {name} did not stop it"
        ),
        format!(
            "restart containerd and the kubelet on {name}, or the node; kubectl delete --force only removes the object"
        ),
    ))
}

/// A pod on a Windows node whose containers fail for a known cause.
pub(super) fn failing(pod: &PodSpec<'_>, record: &PodRecord, node: &NodeView) -> Option<TroubleText> {
    let pipe = csi_pipe(pod);
    let crashes = || (record.messages()).any(|message| message.has_reason("CrashLoopBackOff"));
    let has_no_pipe = || (record.messages()).any(|message| message.mentions("csi-proxy"));
    if let Some(pipe) = pipe.filter(|_| crashes() || has_no_pipe()) {
        return Some((
            PodProblem::CsiProxy,
            format!(
                "a CSI driver that mounts {pipe} does not start on {}: csi-proxy is probably not running there",
                node.name
            ),
            "install csi-proxy as a service on the Windows nodes, or a version of the driver that uses HostProcess".to_owned(),
        ));
    }
    let is_reported =
        |error: &&HostComputeError| (record.messages()).any(|message| message.mentions(error.code));
    let error = ERRORS.iter().find(is_reported)?;
    Some((
        PodProblem::HostCompute,
        format!("on {}: {} ({})", node.name, error.cause, error.code),
        error.remedy.to_owned(),
    ))
}

/// The named pipe of csi-proxy that a pod mounts.
fn csi_pipe<'p>(pod: &'p PodSpec<'_>) -> Option<&'p str> {
    let mut paths = (pod.volumes.iter()).filter_map(|volume| Some(&*volume.host_path.as_ref()?.path));
    paths.find(|path| path.to_ascii_lowercase().contains("pipe\\csi-proxy"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::objects::object::{Object, ReviewStage};
    use crate::model::objects::workload::Kind;

    fn node() -> NodeView {
        NodeView {
            name: "w1".into(),
            operating_system: "windows".into(),
            ..NodeView::default()
        }
    }

    fn failing_pod(volumes: &str, waiting: &str) -> Option<(PodProblem, String)> {
        let json = format!(
            r#"{{"metadata": {{"name": "p"}}, "spec": {{"volumes": [{volumes}], "containers": [{{"name": "c"}}]}},
            "status": {{"containerStatuses": [{{"state": {{"waiting": {waiting}}}}}]}}}}"#
        );
        let pod = Object::parse(Kind::Pod, &json, ReviewStage::Stored).unwrap();
        failing(pod.pod().unwrap(), &PodRecord::read(&json), &node())
            .map(|(problem, message, _)| (problem, message))
    }

    #[test]
    fn a_pod_is_reported_five_minutes_after_its_grace_period() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let pod = |meta: &str| {
            let record = PodRecord::read(&format!(r#"{{"metadata": {{{meta}}}}}"#));
            terminating(&record, &node(), now)
        };
        assert_eq!(pod(""), None);
        assert_eq!(pod(r#""deletionTimestamp": "2026-11-23T12:00:30Z""#), None);
        assert_eq!(pod(r#""deletionTimestamp": "2026-11-23T11:56:00Z""#), None);
        let (problem, message, _) = pod(r#""deletionTimestamp": "2026-11-23T11:00:00Z""#).unwrap();
        assert_eq!(problem, PodProblem::Terminating);
        assert!(
            message.contains("w1") && message.contains("11:00:00"),
            "{message}"
        );
        let held = r#""deletionTimestamp": "2026-11-23T11:00:00Z", "finalizers": ["example.com/x"]"#;
        assert!(pod(held).unwrap().1.contains("example.com/x"));
    }

    #[test]
    fn a_csi_driver_that_crashes_with_a_pipe_of_csi_proxy_misses_it() {
        let pipe = r#"{"name": "p", "hostPath": {"path": "\\\\.\\pipe\\csi-proxy-volume-v1"}}"#;
        let other = r#"{"name": "p", "hostPath": {"path": "\\\\.\\pipe\\containerd-containerd"}}"#;
        let crash =
            r#"{"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}"#;
        let creating = r#"{"reason": "ContainerCreating"}"#;
        assert_eq!(failing_pod(pipe, crash).unwrap().0, PodProblem::CsiProxy);
        assert_eq!(failing_pod(other, crash), None);
        assert_eq!(failing_pod(pipe, creating), None);
    }

    #[test]
    fn an_error_of_the_host_compute_service_has_a_cause() {
        for (code, part) in [
            ("0xC0370106", "newer update revision"),
            ("0xc0370109", "did not answer in time"),
            ("0xc0370102", "Hyper-V"),
        ] {
            let waiting = format!(
                r#"{{"reason": "RunContainerError", "message": "hcs::System::CreateProcess: failure in a Windows system call: The virtual machine or container exited unexpectedly. ({code})"}}"#
            );
            let (problem, message) = failing_pod("", &waiting).unwrap();
            assert_eq!(problem, PodProblem::HostCompute);
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(
            failing_pod("", r#"{"reason": "ErrImagePull", "message": "not found"}"#),
            None
        );
    }
}
