//! The rule on Docker's named pipe, which current nodes do not have.

use super::MICROSOFT;
use super::sources::{host_paths, is_named_pipe};
use crate::model::cluster::facts::Runtime;
use crate::model::cluster::severity::Severity;
use crate::model::field_set::FieldSet;
use crate::model::syntax::text::shown;
use crate::rules::rule::{Check, Rule};

pub(super) static DOCKER_PIPE: Rule = Rule {
    id: "TSM520",
    name: "docker-pipe",
    severity: Severity::Warning,
    runtime: Some(Runtime::Containerd),
    summary: "nodes with containerd do not have Docker's named pipe",
    docs: "Agents and build jobs for Docker mount `\\\\.\\pipe\\docker_engine` to use the node's Docker. Since \
           Kubernetes 1.24 nodes run containerd, whose pipe is `\\\\.\\pipe\\containerd-containerd` and uses another \
           protocol. On a node without Docker the mount fails and the container does not start. The finding is a \
           warning because Docker may be installed in addition to containerd.",
    remedy: "remove the mount; build images with a tool that does not need Docker, and let agents use containerd's pipe or the kubelet",
    see: &[
        MICROSOFT,
        "https://kubernetes.io/docs/tasks/administer-cluster/migrating-from-dockershim/check-if-dockershim-removal-affects-you/",
    ],
    bad: &[
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\docker_engine'}}]",
        r"volumes: [{name: docker, hostPath: {path: '//./pipe/docker_engine'}}]",
        r"volumes: [{name: docker, hostPath: {path: '\\.\pipe\Docker_Engine_Windows'}}]",
    ],
    good: &[
        r"volumes: [{name: containerd, hostPath: {path: '\\.\pipe\containerd-containerd'}}]",
        r"volumes: [{name: csi, hostPath: {path: '\\.\pipe\csi-proxy-filesystem-v1'}}]",
        "# --runtime docker\nvolumes: [{name: docker, hostPath: {path: '//./pipe/docker_engine'}}]",
    ],
    needs: FieldSet::HOST_PATH,
    check: Check::Pod(|cx, out| {
        for (volume, path, _) in host_paths(cx) {
            let pipe = path.rsplit(['/', '\\']).next().unwrap_or(path);
            let is_docker = ["docker_engine", "docker_engine_windows"]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(pipe));
            if is_docker && is_named_pipe(path) {
                out.report(volume.at(&["hostPath", "path"])).message(format!(
                    "the pipe \"{}\" is Docker's; nodes with containerd do not have it",
                    shown(path)
                ));
            }
        }
    }),
    ..Rule::BASE
};
