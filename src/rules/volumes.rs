//! Volumes and paths: what Windows cannot mount, and paths that have another meaning on Windows.

mod mounts;
mod named_pipes;
mod paths;
mod permissions;
mod sources;

use super::context::{ContainerAt, Cx, PodCx};
use super::rule::Rule;
use crate::model::json_types::Map;
use crate::model::object::Body;
use crate::model::os::Os;
use crate::model::os_selectors::os_of_terms;
use crate::model::pod::VolumeMount;
use crate::model::resources::PersistentVolume;

/// Rules TSM501 and up.
pub static RULES: &[&Rule] = &[
    &sources::EMPTY_DIR_MEMORY,
    &sources::EMPTY_DIR_HUGEPAGES,
    &mounts::VOLUME_DEVICES,
    &mounts::SUB_PATH,
    &paths::SUB_PATH_WINDOWS_ESCAPE,
    &sources::VOLUME_DEFAULT_MODE,
    &sources::NFS_VOLUME,
    &sources::UNSUPPORTED_VOLUME_PLUGIN,
    &sources::IMAGE_VOLUME,
    &mounts::RECURSIVE_READ_ONLY,
    &sources::HOST_PATH_DEVICE_TYPE,
    &sources::NAMED_PIPE_HOST_PATH_TYPE,
    &sources::NAMED_PIPE_OLD_BUILD,
    &paths::UNIX_PATH,
    &paths::PATH_CONTROL_CHARACTER,
    &paths::MOUNT_PATH_C_DRIVE,
    &paths::MOUNT_PATH_CASE_COLLISION,
    &mounts::MOUNT_PROPAGATION,
    &sources::SECRET_VOLUME_OLD_BUILD,
    &named_pipes::DOCKER_PIPE,
    &permissions::CONTAINER_USER_HOST_PATH,
    &permissions::UNIX_VOLUME_PERMISSIONS,
];

const STORAGE: &str = "https://kubernetes.io/docs/concepts/storage/windows-storage/";
const VOLUMES: &str = "https://kubernetes.io/docs/concepts/storage/volumes/";
const INTRO: &str = "https://kubernetes.io/docs/concepts/windows/intro/#compatibility-v1-pod-spec-containers";
const MICROSOFT: &str =
    "https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/persistent-storage";

/// Every volume mount of every container, with its index.
fn mounts<'c>(
    cx: &PodCx<'c>,
) -> impl Iterator<Item = (ContainerAt<'c>, usize, &'c VolumeMount<'c>)> + use<'c> {
    cx.containers().flat_map(|at| {
        at.container
            .volume_mounts
            .iter()
            .enumerate()
            .map(move |(index, mount)| (at, index, mount))
    })
}

/// A PersistentVolume that is for Windows: its node affinity allows only Windows nodes, or a Windows workload uses its
/// claim.
pub(super) fn windows_volume<'c>(cx: &Cx<'c>) -> Option<&'c PersistentVolume<'c>> {
    let Body::Volume(volume) = &cx.subject.body else {
        return None;
    };
    let required = volume
        .spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    let selects = required.is_some_and(|selector| {
        let os = os_of_terms(
            &selector.node_selector_terms,
            &Map::default(),
            &cx.facts.node_labels,
        );
        os.is_some_and(|(os, ..)| os == Os::Windows)
    });
    let claim = volume.spec.claim_ref.as_ref();
    let used = || claim.is_some_and(|claim| cx.facts.is_volume_used_on_windows(cx.subject, claim));
    (selects || used()).then_some(&**volume)
}
