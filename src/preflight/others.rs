//! Other engines and injectors: which of them are here, how they clash with Windows pods, and the setting that ends it. The
//! table is that of `docs/explanation/coexistence.md`.

use std::collections::BTreeSet;

use super::workloads::Workloads;
use super::{Sight, Statement, Weight};
use crate::registration::configuration_name;

/// One row of the table: an engine, and its signs.
struct Engine {
    who: &'static str,
    clash: &'static str,
    /// Empty where nothing clashes.
    ends: &'static str,
    /// API groups that it brings.
    groups: &'static [&'static str],
    /// Parts of the names of its webhook configurations.
    hooks: &'static [&'static str],
    /// Objects of its own that clash, by group and resource; a `*` ends a name that only begins so.
    named: &'static [(&'static str, &'static [&'static str])],
    special: Special,
    /// Whether Transom ends the clash by itself.
    is_settled: bool,
}

/// Signs that are no group, configuration or object of the engine's own.
enum Special {
    None,
    /// The platform has it.
    Platform(&'static str),
    /// Namespaces with Windows workloads enforce a profile.
    PodSecurity,
    /// Namespaces have a whitelist of tolerations.
    Whitelist,
    /// The cluster autoscaler's status is there.
    Autoscaler,
}

const NONE: Engine = Engine {
    who: "",
    clash: "",
    ends: "",
    groups: &[],
    hooks: &[],
    named: &[],
    special: Special::None,
    is_settled: false,
};

/// The rows, in the order of the page; a test compares the texts.
static ENGINES: [Engine; 16] = [
    Engine {
        who: "Kyverno, `kyverno-policies` chart, profile restricted",
        clash: "it requires `seccompProfile`, `capabilities.drop: [ALL]` and `allowPrivilegeEscalation: false`, which the API server forbids with `spec.os.name: windows`",
        ends: "keep these policies from Windows pods, see below: no pod can satisfy both them and the API server",
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
        clash: "it does not see nodes by default; no clash",
        ends: "",
        groups: &["kyverno.io"],
        hooks: &["kyverno"],
        ..NONE
    },
    Engine {
        who: "Gatekeeper, PSP library",
        clash: "templates for seccomp, capabilities, users and read-only root have no exemption for an operating system",
        ends: "`spec.match.namespaceSelector` of the constraints, by namespaces for Windows",
        named: &[("templates.gatekeeper.sh/constrainttemplates", &["k8spsp*"])],
        ..NONE
    },
    Engine {
        who: "Gatekeeper, mutation",
        clash: "`Assign` cannot tell a Windows pod from another",
        ends: "the same selector; or `validation.ignoredFields: Remove`, which removes from Windows pods what it put in",
        named: &[("mutations.gatekeeper.sh/assign", &["*"])],
        ..NONE
    },
    Engine {
        who: "Azure Policy",
        clash: "it is Gatekeeper; its constraints for Windows look at the nodeSelector only, which placement sets",
        ends: "",
        named: &[("templates.gatekeeper.sh/constrainttemplates", &["k8sazure*"])],
        ..NONE
    },
    Engine {
        who: "Kubewarden, recommended policies of `kubewarden-defaults`",
        clash: "they put `allowPrivilegeEscalation`, dropped capabilities and `runAsNonRoot` into every pod",
        ends: "`recommendedPolicies.skipAdditionalNamespaces`; or `validation.ignoredFields: Remove`",
        groups: &["policies.kubewarden.io"],
        hooks: &["kubewarden"],
        ..NONE
    },
    Engine {
        who: "Pod Security",
        clash: "with `spec.os.name: windows`, three checks of `restricted` do not apply; without it the Linux fields are required that Windows cannot have",
        ends: "leave `OSName` in `placement.fields`; HostProcess pods need a privileged namespace",
        special: Special::PodSecurity,
        ..NONE
    },
    Engine {
        who: "windows-gmsa",
        clash: "both look at Windows pods; it expands `gmsaCredentialSpecName`, and its configuration sorts before `zz-transom`. It knows only `spec.containers`",
        ends: "nothing",
        groups: &["windows.k8s.io"],
        hooks: &["gmsa"],
        ..NONE
    },
    Engine {
        who: "GKE's own webhook",
        clash: "it adds a toleration; placement leaves alone what is there",
        ends: "nothing",
        special: Special::Platform("gke"),
        ..NONE
    },
    Engine {
        who: "EKS' own webhook",
        clash: "it gives an address only to pods whose nodeSelector says Windows before Transom is called, see EKS",
        ends: "nothing",
        hooks: &["vpc-resource-mutating-webhook"],
        ..NONE
    },
    Engine {
        who: "OpenShift's SecurityContextConstraints",
        clash: "they write what only Linux knows into Windows pods that do not say `spec.os.name: windows`, see OpenShift",
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
        who: "PodTolerationRestriction",
        clash: "a toleration outside of a namespace's whitelist is an error 500 for the user",
        ends: "Transom reads the whitelist annotation and keeps to it",
        special: Special::Whitelist,
        is_settled: true,
        ..NONE
    },
    Engine {
        who: "AKS Admissions Enforcer",
        clash: "it rewrites the selectors of webhooks",
        ends: "the configurations carry `admissions.enforcer/disabled`",
        special: Special::Platform("aks"),
        is_settled: true,
        ..NONE
    },
    Engine {
        who: "Argo CD, Flux",
        clash: "they see a difference in `caBundle`",
        ends: "`ignoreDifferences` as in install.md",
        groups: &["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"],
        named: &[("argoproj.io/applications", &["*"])],
        ..NONE
    },
    Engine {
        who: "cluster-autoscaler, Karpenter",
        clash: "pools at zero have no nodes to learn taints and builds from",
        ends: "`nodePolicy.spec.pools`",
        groups: &["karpenter.sh"],
        special: Special::Autoscaler,
        ..NONE
    },
];

impl Engine {
    /// What of it is here.
    fn seen(&self, sight: Sight<'_>, workloads: &Workloads<'_>) -> Vec<String> {
        let around = sight.around;
        let groups = self
            .groups
            .iter()
            .filter(|group| around.groups.contains_key(**group));
        let mut seen: Vec<String> = groups.map(|group| format!("API group {group}")).collect();
        for hooks in &around.hooks {
            if self.hooks.iter().any(|part| hooks.name.contains(part)) {
                seen.push(format!("{} {}", kind(hooks.is_mutating), hooks.name));
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
            let names = around.named.get(*of).into_iter().flatten();
            seen.extend(
                names
                    .filter(|name| is_wanted(name))
                    .map(|name| format!("{resource} {name}")),
            );
        }
        seen.extend(self.special(sight, workloads));
        seen
    }

    fn special(&self, sight: Sight<'_>, workloads: &Workloads<'_>) -> Vec<String> {
        let namespaces = || sight.snapshot.view.namespaces.iter();
        match self.special {
            Special::Platform(name) if sight.platform.name == name => sight.platform.told_by.clone(),
            Special::None | Special::Platform(_) => Vec::new(),
            Special::PodSecurity => namespaces()
                .filter(|(name, _)| workloads.in_namespaces.contains_key(*name))
                .filter_map(|(name, namespace)| {
                    let profile = namespace.labels.get("pod-security.kubernetes.io/enforce")?;
                    (profile != "privileged").then(|| format!("namespace {name} enforces {profile}"))
                })
                .collect(),
            Special::Whitelist => namespaces()
                .filter(|(_, namespace)| namespace.tolerations_whitelist.is_some())
                .map(|(name, _)| format!("namespace {name}"))
                .collect(),
            Special::Autoscaler => (sight.around.autoscaler.iter())
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

/// What is said of the engines that are here.
pub fn statements(sight: Sight<'_>, workloads: &Workloads<'_>) -> Vec<Statement> {
    let mut all = Vec::new();
    let mut told: BTreeSet<String> = BTreeSet::new();
    for engine in &ENGINES {
        let seen = engine.seen(sight, workloads);
        if seen.is_empty() {
            continue;
        }
        told.extend(seen.iter().cloned());
        let nothing = engine.ends.is_empty() || engine.ends.starts_with("nothing") || engine.is_settled;
        let ends = (!engine.ends.is_empty() && engine.ends != "nothing").then(|| engine.ends.to_owned());
        all.push(
            Statement {
                weight: if nothing { Weight::Fine } else { Weight::Act },
                cure: ends,
                ..Statement::fine(format!("{}: {}", engine.who, engine.clash))
            }
            .by(seen),
        );
    }
    let own = configuration_name("transom");
    for hooks in &sight.around.hooks {
        let title = format!("{} {}", kind(hooks.is_mutating), hooks.name);
        if hooks.is_mutating && hooks.sees_pods && hooks.name > own {
            let text = format!(
                "{} is called after {own}: what it adds to a pod is seen by /validate only",
                hooks.name
            );
            let cure =
                format!("give it a name that sorts before {own}, where what it adds matters to Windows pods");
            all.push(Statement::act(text, cure).by([&title]));
        } else if hooks.is_mutating && hooks.sees_pods && hooks.name != own && !told.contains(&title) {
            let text = format!(
                "{} changes pods; what it does to those for Windows is not known",
                hooks.name
            );
            all.push(Statement::fine(text).by([&title]));
        }
    }
    if !sight.around.bindings.is_empty() {
        let names = sight.around.bindings.iter();
        let names: Vec<&String> = names.filter(|name| !name.contains("transom")).collect();
        if !names.is_empty() {
            let text = format!(
                "{} ValidatingAdmissionPolicies are bound; they count beside Transom",
                names.len()
            );
            let by = names
                .iter()
                .map(|name| format!("ValidatingAdmissionPolicyBinding {name}"));
            all.push(Statement::fine(text).by(by));
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
        .filter(|resource| !sight.could_list(&[resource]))
        .collect();
    if !unread.is_empty() {
        let text = format!("not known (not read): {}", unread.join(", "));
        all.push(Statement::fine(text));
    } else if all.is_empty() {
        all.push(Statement::fine("none that is known to clash"));
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
        // Not included: the image is built without the pages.
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
            let by_itself = matches!(engine.special, Special::None)
                && engine.groups.is_empty()
                && engine.hooks.is_empty()
                && engine.named.is_empty();
            assert!(!by_itself, "{} has no sign", engine.who);
        }
    }
}
