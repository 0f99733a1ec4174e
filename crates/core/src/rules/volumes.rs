//! Volumes and paths: what Windows cannot mount, and paths that have another meaning on Windows.

mod mounts;
mod named_pipes;
mod paths;
mod permissions;
mod sources;

use super::context::{ContainerAt, PodCx};
use super::rule::Rule;
use crate::model::objects::pod::VolumeMount;

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
