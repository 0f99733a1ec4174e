//! Rules on HostProcess pods and pods with a group-managed service account (gMSA) that depend on replicas and nodes.

use super::{OPTIONS_SOURCE, host_process_at, option_at, windows_options};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::nodes::node::Host;
use crate::model::objects::workload::Kind;
use crate::model::syntax::path::Path;
use crate::rules::context::PodCx;
use crate::rules::rule::{Check, Rule};

const GMSA: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/configure-gmsa/";
/// The longest computer name of Windows (NetBIOS).
const LONGEST_COMPUTER_NAME: usize = 15;

/// The path where the pod first names a gMSA.
fn gmsa_at(cx: &PodCx<'_>) -> Option<Path> {
    windows_options(cx).find_map(|(container, options)| {
        let field = if options.gmsa_credential_spec_name.is_some() {
            "gmsaCredentialSpecName"
        } else {
            options.gmsa_credential_spec.as_ref()?;
            "gmsaCredentialSpec"
        };
        Some(option_at(cx, container, field))
    })
}

pub(super) static GMSA_SHARED_BY_REPLICAS: Rule = Rule {
    id: "TSM314",
    name: "gmsa-shared-by-replicas",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 14..=Rule::STILL,
    summary: "several replicas share one gMSA",
    docs: "Containers that use the same group-managed service account at the same time can lose the trust of the \
           domain: logons fail with `The trust relationship between this workstation and the primary domain failed`. \
           Users report it for pods whose host names are equal in the first 15 characters, which is the longest \
           computer name of Windows. The windows-gmsa webhook can give pods random host names, but only if that is \
           enabled. The rule reports a Deployment, ReplicaSet, StatefulSet or ReplicationController with more than one \
           replica whose pods have a gMSA.",
    remedy: "enable random host names in the windows-gmsa webhook, or use one gMSA for each replica",
    see: &[
        GMSA,
        "https://github.com/microsoft/Windows-Containers/issues/405",
        "https://github.com/kubernetes-sigs/windows-gmsa/issues/155",
    ],
    bad: &[
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, template: {spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}}}",
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 2, template: {spec: {os: {name: windows}, containers: [{name: web, image: web, securityContext: {windowsOptions: {gmsaCredentialSpec: '{}'}}}]}}}}",
    ],
    good: &[
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, template: {spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, template: {spec: {os: {name: windows}, containers: [{name: web, image: web}]}}}}",
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}",
    ],
    needs: FieldSet::GMSA_NAME.or(FieldSet::GMSA_SPEC),
    check: Check::Pod(|cx, out| {
        let has_replicas = matches!(
            cx.subject.kind,
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::ReplicationController
        );
        let replicas = cx.template.and_then(|template| template.replicas);
        let Some(replicas) = replicas.filter(|replicas| has_replicas && *replicas > 1) else {
            return;
        };
        if let Some(path) = gmsa_at(cx) {
            out.report(path).message(format!(
                "{replicas} replicas share one gMSA and may lose the trust of the domain"
            ));
        }
    }),
    ..Rule::BASE
};

pub(super) static GMSA_OLD_REVISION: Rule = Rule {
    id: "TSM315",
    name: "gmsa-old-revision",
    severity: Severity::Warning,
    kubernetes: 14..=Rule::STILL,
    summary: "on every Windows node the gMSA does not work with containerd",
    docs: "On Windows Server 2019, a group-managed service account works with containerd only from revision 17763.1817 \
           (KB5000822, March 2021). On an older node the container gets the identity, but cannot use it on network \
           shares. The rule reads the revision from `status.nodeInfo.kernelVersion`. It reports a pod only if every \
           known node that it may land on is older, and never if a revision is not known.",
    remedy: "install KB5000822 or a later update on the Windows nodes",
    see: &[
        GMSA,
        "https://github.com/kubernetes/website/pull/31412",
        "https://github.com/microsoft/Windows-Containers/issues/44",
    ],
    bad: &["{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1757, containerRuntimeVersion: 'containerd://1.7.20'}}}"],
    good: &[
        // A node with the update.
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1757, containerRuntimeVersion: 'containerd://1.7.20'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-2}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1817, containerRuntimeVersion: 'containerd://1.7.20'}}}",
        // The revision is not known.
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: win-1}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763, containerRuntimeVersion: 'containerd://1.7.20'}}}",
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}",
    ],
    needs: FieldSet::GMSA_NAME.or(FieldSet::GMSA_SPEC),
    check: Check::Pod(|cx, out| {
        const FIRST: u32 = 1817;
        let is_old = |host: &Host| {
            host.build.is_some_and(|build| build.number() == 17763)
                && host.containerd.is_some()
                && host.revision.is_some_and(|revision| revision < FIRST)
        };
        let Some(newest) = cx.target_nodes().max_by_key(|host| host.revision) else {
            return;
        };
        if !cx.target_nodes().all(is_old) {
            return;
        }
        if let (Some(path), Some(revision)) = (gmsa_at(cx), newest.revision) {
            out.report(path).message(format!(
                "the newest Windows node, {}, is 17763.{revision}; with containerd a gMSA needs 17763.{FIRST}",
                newest.name
            ));
        }
    }),
    ..Rule::BASE
};

pub(super) static LONG_NODE_NAME: Rule = Rule {
    id: "TSM316",
    name: "long-node-name",
    severity: Severity::Advice,
    class: Class::BestPractice,
    kubernetes: 22..=Rule::STILL,
    summary: "the pod may run on a node whose name is longer than a Windows computer name",
    docs: "The computer name of Windows has at most 15 characters. A HostProcess container sees the shortened name in \
           `COMPUTERNAME` and as its host name, not the name of the Node object: a program that looks up its own Node \
           by that name finds none. A gMSA uses computer names too, so nodes whose names are equal in the first 15 \
           characters are one computer for the domain. The rule reports a HostProcess pod, or a pod with a gMSA, that \
           may land on a known Windows node with such a name. It skips names with a dot, as on EKS: those are DNS names \
           of the platform, and the computer name is another one anyway.",
    remedy: "pass the name of the node with fieldRef spec.nodeName, and give new nodes names of at most 15 characters",
    see: &["https://github.com/kubernetes/kubernetes/issues/106640", OPTIONS_SOURCE],
    bad: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: windows-worker-01}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: windows-worker-01}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297}}}",
    ],
    good: &[
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: akswin00000a}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: agent, image: agent}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: ip-10-0-0-4.ec2.internal}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: web, image: web}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: windows-worker-01}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297}}}",
    ],
    needs: FieldSet::HOST_PROCESS.or(FieldSet::GMSA_NAME).or(FieldSet::GMSA_SPEC),
    check: Check::Pod(|cx, out| {
        let is_long = |host: &&Host| host.name.len() > LONGEST_COMPUTER_NAME && !host.name.contains('.');
        let Some(host) = cx.target_nodes().find(is_long) else { return };
        if let Some(path) = host_process_at(cx).or_else(|| gmsa_at(cx)) {
            let name = &host.name;
            let short: String = name.chars().take(LONGEST_COMPUTER_NAME).collect();
            out.report(path).message(format!(
                "the pod may run on node {name}, whose computer name is {short}"
            ));
        }
    }),
    ..Rule::BASE
};
