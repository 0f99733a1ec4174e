//! Other engines and injectors: which are installed, how they conflict with Windows pods, and which setting resolves
//! the conflict. The table equals that of `docs/explanation/coexistence.md`.

use std::collections::BTreeSet;

use super::install::webhook_namespaces;
use super::workloads::WorkloadFindings;
use super::{ClusterInput, FindingStatus, PreflightFinding};
use crate::registration::configuration_name;

/// One row of the table: an engine, and how it is detected.
struct Engine {
    who: &'static str,
    clash: &'static str,
    /// Empty if nothing must be resolved.
    ends: &'static str,
    /// API groups that it serves.
    groups: &'static [&'static str],
    /// Substrings of the names of its webhook configurations.
    hooks: &'static [&'static str],
    /// Its objects that conflict, by group and resource; a final `*` matches a prefix.
    named: &'static [(&'static str, &'static [&'static str])],
    special: SpecialSign,
    /// Whether Transom resolves the conflict automatically.
    is_settled: bool,
}

/// Ways to detect an engine without a group, configuration or object of its own.
enum SpecialSign {
    None,
    /// The platform includes it.
    Platform(&'static str),
    /// Namespaces with Windows workloads enforce a profile.
    PodSecurity,
    /// Namespaces have the annotation of PodNodeSelector.
    PluginSelector,
    /// OpenShift adds a node selector in namespaces.
    OpenShiftSelector,
    /// Namespaces have a whitelist of tolerations.
    Whitelist,
    /// The ConfigMap of the cluster autoscaler's status exists.
    Autoscaler,
}

const NONE: Engine = Engine {
    who: "",
    clash: "",
    ends: "",
    groups: &[],
    hooks: &[],
    named: &[],
    special: SpecialSign::None,
    is_settled: false,
};

/// The rows, in the order of the page; a test compares them.
static ENGINES: [Engine; 18] = [
    Engine {
        who: "Kyverno, `kyverno-policies` chart, profile restricted",
        clash: "it requires `seccompProfile`, `capabilities.drop: [ALL]` and `allowPrivilegeEscalation: false`, which the API server rejects with `spec.os.name: windows`",
        ends: "exclude Windows pods from these policies, see below: no pod can satisfy both the policies and the API server",
        named: &[(
            "kyverno.io/clusterpolicies",
            &[
                "restrict-seccomp-strict",
                "disallow-privilege-escalation",
                "disallow-capabilities-strict",
            ],
        )],
        ..NONE
    },
    Engine {
        who: "Kyverno, `resourceFilters` and webhooks",
        clash: "it does not check nodes by default; no conflict",
        ends: "",
        groups: &["kyverno.io"],
        hooks: &["kyverno"],
        ..NONE
    },
    Engine {
        who: "Gatekeeper, PSP library",
        clash: "its templates for seccomp, capabilities, users and read-only root cannot exempt an operating system",
        ends: "a `spec.match.namespaceSelector` in the constraints that excludes namespaces for Windows",
        named: &[("templates.gatekeeper.sh/constrainttemplates", &["k8spsp*"])],
        ..NONE
    },
    Engine {
        who: "Gatekeeper, mutation",
        clash: "`Assign` cannot distinguish Windows pods from other pods",
        ends: "the same selector; or `validation.ignoredFields: Remove`, which removes the added fields from Windows pods",
        named: &[("mutations.gatekeeper.sh/assign", &["*"])],
        ..NONE
    },
    Engine {
        who: "Azure Policy",
        clash: "it uses Gatekeeper; its constraints for Windows check only the nodeSelector, which placement sets",
        ends: "",
        named: &[("templates.gatekeeper.sh/constrainttemplates", &["k8sazure*"])],
        ..NONE
    },
    Engine {
        who: "Kubewarden, recommended policies of `kubewarden-defaults`",
        clash: "they add `allowPrivilegeEscalation`, dropped capabilities and `runAsNonRoot` to every pod",
        ends: "`recommendedPolicies.skipAdditionalNamespaces`; or `validation.ignoredFields: Remove`",
        groups: &["policies.kubewarden.io"],
        hooks: &["kubewarden"],
        ..NONE
    },
    Engine {
        who: "Pod Security",
        clash: "with `spec.os.name: windows`, three checks of `restricted` do not apply; without it, `restricted` requires Linux fields that Windows does not support",
        ends: "keep `OSName` in `placement.fields`; HostProcess pods need a privileged namespace",
        special: SpecialSign::PodSecurity,
        ..NONE
    },
    Engine {
        who: "windows-gmsa",
        clash: "both change Windows pods; it expands `gmsaCredentialSpecName`, only in `spec.containers`, and the API server calls it before `zz-transom`",
        ends: "nothing",
        groups: &["windows.k8s.io"],
        hooks: &["gmsa"],
        ..NONE
    },
    Engine {
        who: "GKE's own webhook",
        clash: "it adds a toleration; placement keeps existing tolerations",
        ends: "nothing",
        special: SpecialSign::Platform("gke"),
        ..NONE
    },
    Engine {
        who: "EKS' own webhook",
        clash: "it requests an address only for pods that have a Windows nodeSelector before the API server calls Transom, see EKS",
        ends: "nothing",
        hooks: &["vpc-resource-mutating-webhook"],
        ..NONE
    },
    Engine {
        who: "OpenShift's SecurityContextConstraints",
        clash: "they write Linux-only fields into Windows pods without `spec.os.name: windows`, see OpenShift",
        ends: "`spec.os.name: windows` in templates",
        groups: &["security.openshift.io"],
        ..NONE
    },
    Engine {
        who: "sidecar injectors (Istio, Linkerd, Vault, Dapr, OpenTelemetry)",
        clash: "they inject Linux containers, which cannot run in a Windows pod",
        ends: "label or annotate the template: `sidecar.istio.io/inject: \"false\"`, `linkerd.io/inject: disabled`, `vault.hashicorp.com/agent-inject: \"false\"`, `dapr.io/enabled: \"false\"`, `sidecar.opentelemetry.io/inject: \"false\"` and `instrumentation.opentelemetry.io/inject-dotnet: \"false\"` (and the other languages of its Instrumentation)",
        hooks: &[
            "istio-sidecar-injector",
            "linkerd-proxy-injector",
            "vault-agent-injector",
            "dapr-sidecar-injector",
            "opentelemetry-operator",
        ],
        ..NONE
    },
    Engine {
        who: "PodNodeSelector",
        clash: "it adds the node selector of the namespace to pods, and templates do not show it",
        ends: "`evidence.podNodeSelector: Enabled`, see below",
        special: SpecialSign::PluginSelector,
        ..NONE
    },
    Engine {
        who: "OpenShift's default node selectors",
        clash: "they are added to pods too, and templates do not show them",
        ends: "`webhooks.defaultNodeSelector` for templates without a sign, see below",
        special: SpecialSign::OpenShiftSelector,
        ..NONE
    },
    Engine {
        who: "PodTolerationRestriction",
        clash: "a toleration that is not in the whitelist of the namespace, or of the cluster, causes an error 500 for the user",
        ends: "Transom reads the annotation of the namespace, and adds only listed tolerations; name the whitelist of the plug-in's configuration file in `placement.allowedTolerations`",
        special: SpecialSign::Whitelist,
        is_settled: true,
        ..NONE
    },
    Engine {
        who: "AKS Admissions Enforcer",
        clash: "it rewrites the selectors of webhooks",
        ends: "the configurations carry `admissions.enforcer/disabled`",
        special: SpecialSign::Platform("aks"),
        is_settled: true,
        ..NONE
    },
    Engine {
        who: "Argo CD, Flux",
        clash: "they report a difference in `caBundle`",
        ends: "`ignoreDifferences` of `caBundle`",
        groups: &["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"],
        named: &[("argoproj.io/applications", &["*"])],
        ..NONE
    },
    Engine {
        who: "cluster-autoscaler, Karpenter",
        clash: "pools at zero nodes show no taints and builds",
        ends: "`nodePolicy.spec.pools`",
        groups: &["karpenter.sh"],
        special: SpecialSign::Autoscaler,
        ..NONE
    },
];

impl Engine {
    /// The evidence that it is installed.
    fn evidence(&self, input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<String> {
        let environment = input.environment;
        let groups = self
            .groups
            .iter()
            .filter(|group| environment.groups.contains_key(**group));
        let mut evidence: Vec<String> = groups.map(|group| format!("API group {group}")).collect();
        for hooks in &environment.hooks {
            if self.hooks.iter().any(|part| hooks.name.contains(part)) {
                evidence.push(format!("{} {}", kind(hooks.is_mutating), hooks.name));
            }
        }
        for (of, wanted) in self.named {
            let resource = of.rsplit('/').next().unwrap_or(of);
            let is_wanted = |name: &str| {
                wanted.iter().any(|wanted| match wanted.strip_suffix('*') {
                    Some(begin) => name.starts_with(begin),
                    None => name == *wanted,
                })
            };
            let names = environment.named.get(*of).into_iter().flatten();
            evidence.extend(
                names
                    .filter(|name| is_wanted(name))
                    .map(|name| format!("{resource} {name}")),
            );
        }
        evidence.extend(self.special(input, workloads));
        evidence
    }

    fn special(&self, input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<String> {
        let namespaces = || input.snapshot.view.namespaces.iter();
        match self.special {
            SpecialSign::Platform(name) if input.platform.name == name => {
                input.platform.evidence_texts.clone()
            }
            SpecialSign::OpenShiftSelector if input.snapshot.view.has_scc => namespaces()
                .filter(|(_, namespace)| {
                    let stated = &namespace.stated_selectors.openshift;
                    stated.as_ref().is_some_and(|selector| !selector.is_empty())
                })
                .map(|(name, _)| format!("namespace {name}"))
                .collect(),
            SpecialSign::None | SpecialSign::Platform(_) | SpecialSign::OpenShiftSelector => Vec::new(),
            SpecialSign::PodSecurity => namespaces()
                .filter(|(name, _)| workloads.in_namespaces.contains_key(*name))
                .filter_map(|(name, namespace)| {
                    let profile = namespace.labels.get("pod-security.kubernetes.io/enforce")?;
                    (profile != "privileged").then(|| format!("namespace {name} enforces {profile}"))
                })
                .collect(),
            SpecialSign::PluginSelector => namespaces()
                .filter(|(_, namespace)| namespace.stated_selectors.plugin.is_some())
                .map(|(name, _)| format!("namespace {name}"))
                .collect(),
            SpecialSign::Whitelist => namespaces()
                .filter(|(_, namespace)| namespace.tolerations_whitelist.is_some())
                .map(|(name, _)| format!("namespace {name}"))
                .collect(),
            SpecialSign::Autoscaler => (input.environment.autoscaler.iter())
                .map(|_| "ConfigMap kube-system/cluster-autoscaler-status".to_owned())
                .collect(),
        }
    }
}

fn kind(is_mutating: bool) -> &'static str {
    if is_mutating {
        "MutatingWebhookConfiguration"
    } else {
        "ValidatingWebhookConfiguration"
    }
}

/// The findings about the installed engines.
pub fn findings(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for engine in &ENGINES {
        let evidence = engine.evidence(input, workloads);
        if evidence.is_empty() {
            continue;
        }
        listed.extend(evidence.iter().cloned());
        let nothing = engine.ends.is_empty() || engine.ends.starts_with("nothing") || engine.is_settled;
        let ends = (!engine.ends.is_empty() && engine.ends != "nothing").then(|| engine.ends.to_owned());
        all.push(
            PreflightFinding {
                status: if nothing {
                    FindingStatus::Ok
                } else {
                    FindingStatus::ActionRequired
                },
                remedy: ends,
                ..PreflightFinding::fine(format!("{}: {}", engine.who, engine.clash))
            }
            .by(evidence),
        );
    }
    let own = configuration_name("transom");
    for hooks in &input.environment.hooks {
        let title = format!("{} {}", kind(hooks.is_mutating), hooks.name);
        if hooks.is_mutating && hooks.sees_pods && hooks.name > own {
            let text = format!(
                "{} is called after {own}: only /validate sees what it adds to a pod",
                hooks.name
            );
            let remedy = format!("if it changes Windows pods, give it a name that sorts before {own}");
            all.push(PreflightFinding::act(text, remedy).by([&title]));
        } else if hooks.is_mutating && hooks.sees_pods && hooks.name != own && !listed.contains(&title) {
            let text = format!(
                "{} changes pods; what it changes in Windows pods is not known",
                hooks.name
            );
            all.push(PreflightFinding::fine(text).by([&title]));
        }
    }
    let namespaces = webhook_namespaces(input, workloads);
    if let (Some(not_known), false) = (workloads.not_known(input), namespaces.is_empty()) {
        let text = format!(
            "not known whether the namespaces of webhooks that pod creation waits for contain Windows workloads ({not_known}), \
             so the values do not exclude them"
        );
        let remedy = "run this again when this is known; or add those without Windows workloads to \
                      webhooks.excludedNamespaces yourself";
        let by = namespaces.keys().map(|name| format!("namespace {name}"));
        all.push(PreflightFinding::act(text, remedy).by(by));
    }
    if !input.environment.bindings.is_empty() {
        let names = input.environment.bindings.iter();
        let names: Vec<&String> = names.filter(|name| !name.contains("transom")).collect();
        if !names.is_empty() {
            let text = format!(
                "{} ValidatingAdmissionPolicies are bound; they apply in addition to Transom",
                names.len()
            );
            let by = names
                .iter()
                .map(|name| format!("ValidatingAdmissionPolicyBinding {name}"));
            all.push(PreflightFinding::fine(text).by(by));
        }
    }
    let signs = [
        "API groups",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
        "namespaces",
        "clusterpolicies",
        "constrainttemplates",
        "assign",
        "clusteradmissionpolicies",
        "applications",
    ];
    let unread: Vec<&str> = (signs.into_iter())
        .filter(|resource| !input.could_list(&[resource]))
        .collect();
    if !unread.is_empty() {
        let text = format!("not known (not read): {}", unread.join(", "));
        all.push(PreflightFinding::fine(text));
    } else if all.is_empty() {
        all.push(PreflightFinding::fine("none known to conflict"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell without the targets of its links.
    fn cell(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text.trim();
        while let Some((before, link)) = rest.split_once("](") {
            out.push_str(&before.replacen('[', "", 1));
            rest = link.split_once(')').unwrap().1;
        }
        out + rest
    }

    #[test]
    fn the_table_is_that_of_the_page() {
        // Not include_str!: the image is built without the pages.
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/explanation/coexistence.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().filter(|line| line.starts_with('|')).skip(2);
        let rows: Vec<Vec<String>> = rows
            .map(|row| row.trim_matches('|').split('|').map(cell).collect())
            .collect();
        let table: Vec<Vec<String>> = ENGINES
            .iter()
            .map(|engine| [engine.who, engine.clash, engine.ends].map(str::to_owned).into())
            .collect();
        assert_eq!(table, rows);
        for engine in &ENGINES {
            let by_itself = matches!(engine.special, SpecialSign::None)
                && engine.groups.is_empty()
                && engine.hooks.is_empty()
                && engine.named.is_empty();
            assert!(!by_itself, "{} has no sign", engine.who);
        }
    }
}
