//! Reads the status of a pod: whether it is ready, pending or terminating, and what its kubelet reports about its
//! containers.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// How long a pod may have no scheduling condition before it is reported: the scheduler works through a
/// queue.
const SILENCE: SignedDuration = SignedDuration::from_secs(60);

/// The fields of a pod that the model does not read.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PodRecord {
    metadata: PodRecordMeta,
    spec: PodRecordSpec,
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodRecordMeta {
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    finalizers: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodRecordSpec {
    scheduling_gates: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodCondition {
    r#type: Option<String>,
    status: Option<String>,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    state: Option<ContainerState>,
    last_state: Option<ContainerState>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerState {
    waiting: Option<ContainerStateMessage>,
    terminated: Option<ContainerStateMessage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ContainerStateMessage {
    reason: Option<String>,
    message: Option<String>,
}

impl ContainerStateMessage {
    pub(super) fn has_reason(&self, reason: &str) -> bool {
        self.reason.as_deref() == Some(reason)
    }

    /// Whether the message contains a text, which must be lower case.
    pub(super) fn mentions(&self, text: &str) -> bool {
        let message = self.message.as_deref().unwrap_or_default();
        message.to_ascii_lowercase().contains(text)
    }
}

/// What a kubelet reports about the containers of a pod, limited to platform errors.
#[derive(Clone, Copy, Default)]
pub(super) struct KubeletMessages {
    wrong_build: bool,
    wrong_platform: bool,
}

impl KubeletMessages {
    /// The image is for a different Windows build than the node's.
    pub(super) fn is_wrong_build(self) -> bool {
        self.wrong_build
    }

    /// There is no image for the node's operating system, or for its build.
    pub(super) fn is_wrong_platform(self) -> bool {
        self.wrong_platform
    }

    /// Reads a kubelet's message.
    ///
    /// Source: the text of hcsshim and Windows for error 0xc0370101; the message of Docker and hcsshim for
    /// pulling an image of a newer build; the message of containerd and Docker if an index has no image for
    /// the platform.
    fn read(&mut self, message: &ContainerStateMessage) {
        const BUILD: [&str; 4] = [
            "0xc0370101",
            "operating system does not match the host operating system",
            "operating system of the container does not match the operating system of the host",
            "-based image is incompatible with a",
        ];
        const PLATFORM: [&str; 4] = [
            "no match for platform in manifest",
            "no matching manifest for",
            "image operating system \"",
            "cannot be used on this platform",
        ];
        let has = |texts: &[&str]| texts.iter().any(|text| message.mentions(text));
        self.wrong_build |= has(&BUILD);
        self.wrong_platform |= has(&PLATFORM);
    }
}

impl PodRecord {
    /// The record of a pod; empty if it cannot be read.
    pub(super) fn read(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    fn condition(&self, name: &str) -> Option<&PodCondition> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.find(|condition| condition.r#type.as_deref() == Some(name))
    }

    pub(super) fn is_ready(&self) -> bool {
        let ready = self.condition("Ready");
        ready.is_some_and(|ready| ready.status.as_deref() == Some("True"))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether the scheduler has found no node, or has set no condition for too long. The scheduler skips
    /// pods with scheduling gates.
    pub(super) fn waits_for_a_node(&self, now: Timestamp) -> bool {
        let is_gated = self
            .spec
            .scheduling_gates
            .as_ref()
            .is_some_and(|gates| !gates.is_empty());
        let is_old = |created| now.duration_since(created) > SILENCE;
        let scheduled = self
            .condition("PodScheduled")
            .map(|scheduled| scheduled.status.as_deref());
        !is_gated
            && match scheduled {
                Some(status) => status == Some("False"),
                None => self.metadata.creation_timestamp.is_some_and(is_old),
            }
    }

    /// Since when it has been on its node, or pending.
    pub(super) fn since(&self) -> Option<Timestamp> {
        let scheduled = self.condition("PodScheduled");
        scheduled
            .and_then(|scheduled| scheduled.last_transition_time)
            .or(self.metadata.creation_timestamp)
    }

    /// When the grace period of a terminating pod ends: the API server sets this time.
    pub(super) fn deletion_deadline(&self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp
    }

    pub(super) fn finalizers(&self) -> &[String] {
        self.metadata.finalizers.as_deref().unwrap_or_default()
    }

    /// What the kubelet reports about the current and the last state of each container.
    pub(super) fn messages(&self) -> impl Iterator<Item = &ContainerStateMessage> {
        let lists = [
            &self.status.init_container_statuses,
            &self.status.container_statuses,
        ];
        let containers = lists.into_iter().flatten().flatten();
        let states = containers.flat_map(|container| [&container.state, &container.last_state]);
        states
            .flatten()
            .flat_map(|state| [&state.waiting, &state.terminated])
            .flatten()
    }

    pub(super) fn kubelet_messages(&self) -> KubeletMessages {
        let mut kubelet_messages = KubeletMessages::default();
        self.messages().for_each(|message| kubelet_messages.read(message));
        kubelet_messages
    }
}
