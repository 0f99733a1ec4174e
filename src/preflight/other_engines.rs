//! Other engines and injectors: which are installed, how they conflict with Windows pods, and which setting resolves
//! the conflict. The table equals that of `docs/explanation/placement.md`.

use std::collections::BTreeSet;

use super::install::webhook_namespaces;
use super::workloads::WorkloadFindings;
use super::{ClusterInput, FindingStatus, PreflightFinding};
use crate::cluster::cache::CachedNamespace;
use crate::cluster::environment::{AUTOSCALER_STATUS, WebhookPresence};
use crate::registration::configuration_name;

/// One row of the table: an engine, and how it is detected.
struct Engine {
    who: &'static str,
    clash: &'static str,
    /// Empty if nothing must be resolved.
    ends: &'static str,
    /// Whether Transom resolves the conflict automatically.
    is_settled: bool,
    signs: &'static [EngineSign],
}

/// How an engine is detected.
enum EngineSign {
    /// API groups that it serves.
    Groups(&'static [&'static str]),
    /// Substrings of the names of its webhook configurations.
    Hooks(&'static [&'static str]),
    /// Its objects that conflict: group, resource, and names, of which a final `*` matches a prefix.
    Objects(&'static str, &'static str, &'static [&'static str]),
    /// The platform includes it.
    Platform(&'static str),
    /// Namespaces show it: what one of them shows.
    Namespaces(fn(&NamespaceInput<'_>) -> Option<String>),
    /// The ConfigMap of the cluster autoscaler's status exists.
    Autoscaler,
}

/// A namespace, as a sign may read it.
struct NamespaceInput<'n> {
    name: &'n str,
    namespace: &'n CachedNamespace,
    has_windows_workloads: bool,
    is_on_openshift: bool,
}

impl NamespaceInput<'_> {
    fn title_if(&self, is_there: bool) -> Option<String> {
        is_there.then(|| format!("namespace {}", self.name))
    }
}

const fn engine(
    who: &'static str,
    clash: &'static str,
    ends: &'static str,
    signs: &'static [EngineSign],
) -> Engine {
    Engine {
        who,
        clash,
        ends,
        is_settled: false,
        signs,
    }
}

/// The rows, in the order of the page; a test compares them.
static ENGINES: [Engine; 18] = [
    engine(
        "Kyverno, `kyverno-policies` chart, profile restricted",
        "it requires `seccompProfile`, `capabilities.drop: [ALL]` and `allowPrivilegeEscalation: false`, which the API server rejects with `spec.os.name: windows`",
        "exclude Windows pods from these policies, see placement.md, Kyverno: no pod can satisfy both the policies and the API server",
        &[EngineSign::Objects(
            "kyverno.io",
            "clusterpolicies",
            &[
                "restrict-seccomp-strict",
                "disallow-privilege-escalation",
                "disallow-capabilities-strict",
            ],
        )],
    ),
    engine(
        "Kyverno, `resourceFilters` and webhooks",
        "it does not check nodes by default; no conflict",
        "",
        &[
            EngineSign::Groups(&["kyverno.io"]),
            EngineSign::Hooks(&["kyverno"]),
        ],
    ),
    engine(
        "Gatekeeper, PSP library",
        "its templates for seccomp, capabilities, users and read-only root cannot exempt an operating system",
        "a `spec.match.namespaceSelector` in the constraints that excludes namespaces for Windows",
        &[EngineSign::Objects(
            "templates.gatekeeper.sh",
            "constrainttemplates",
            &["k8spsp*"],
        )],
    ),
    engine(
        "Gatekeeper, mutation",
        "`Assign` cannot distinguish Windows pods from other pods",
        "the same selector; or `validation.ignoredFields: Remove`, which removes the added fields from Windows pods",
        &[EngineSign::Objects("mutations.gatekeeper.sh", "assign", &["*"])],
    ),
    engine(
        "Azure Policy",
        "it uses Gatekeeper; its constraints for Windows check only the nodeSelector, which placement sets",
        "",
        &[EngineSign::Objects(
            "templates.gatekeeper.sh",
            "constrainttemplates",
            &["k8sazure*"],
        )],
    ),
    engine(
        "Kubewarden, recommended policies of `kubewarden-defaults`",
        "they add `allowPrivilegeEscalation`, dropped capabilities and `runAsNonRoot` to every pod",
        "`recommendedPolicies.skipAdditionalNamespaces`; or `validation.ignoredFields: Remove`",
        &[
            EngineSign::Groups(&["policies.kubewarden.io"]),
            EngineSign::Hooks(&["kubewarden"]),
        ],
    ),
    engine(
        "Pod Security",
        "with `spec.os.name: windows`, three checks of `restricted` do not apply; without it, `restricted` requires Linux fields that Windows does not support",
        "keep `OSName` in `placement.fields`; HostProcess pods need a privileged namespace",
        &[EngineSign::Namespaces(|it| {
            let profile = it.namespace.labels.get("pod-security.kubernetes.io/enforce")?;
            (it.has_windows_workloads && profile != "privileged")
                .then(|| format!("namespace {} enforces {profile}", it.name))
        })],
    ),
    engine(
        "windows-gmsa",
        "both change Windows pods; it expands `gmsaCredentialSpecName`, only in `spec.containers`, and the API server calls it before `zz-transom`",
        "nothing",
        &[
            EngineSign::Groups(&["windows.k8s.io"]),
            EngineSign::Hooks(&["gmsa"]),
        ],
    ),
    engine(
        "GKE's own webhook",
        "it adds a toleration; placement keeps existing tolerations",
        "nothing",
        &[EngineSign::Platform("gke")],
    ),
    engine(
        "EKS' own webhook",
        "it requests an address only for pods that have a Windows nodeSelector before the API server calls Transom, see placement.md, EKS",
        "nothing",
        &[EngineSign::Hooks(&["vpc-resource-mutating-webhook"])],
    ),
    engine(
        "OpenShift's SecurityContextConstraints",
        "they write Linux-only fields into Windows pods without `spec.os.name: windows`, see placement.md, OpenShift",
        "`spec.os.name: windows` in templates",
        &[EngineSign::Groups(&["security.openshift.io"])],
    ),
    engine(
        "sidecar injectors (Istio, Linkerd, Vault, Dapr, OpenTelemetry)",
        "they inject Linux containers, which cannot run in a Windows pod",
        "label or annotate the template: `sidecar.istio.io/inject: \"false\"`, `linkerd.io/inject: disabled`, `vault.hashicorp.com/agent-inject: \"false\"`, `dapr.io/enabled: \"false\"`, `sidecar.opentelemetry.io/inject: \"false\"` and `instrumentation.opentelemetry.io/inject-dotnet: \"false\"` (and the other languages of its Instrumentation)",
        &[EngineSign::Hooks(&[
            "istio-sidecar-injector",
            "linkerd-proxy-injector",
            "vault-agent-injector",
            "dapr-sidecar-injector",
            "opentelemetry-operator",
        ])],
    ),
    engine(
        "PodNodeSelector",
        "it adds the node selector of the namespace to pods, and templates do not show it",
        "`cluster.podNodeSelector: Enabled`, see placement.md, Default node selectors of namespaces",
        &[EngineSign::Namespaces(|it| {
            it.title_if(it.namespace.stated_selectors.plugin.is_some())
        })],
    ),
    engine(
        "OpenShift's default node selectors",
        "they are added to pods too, and templates do not show them",
        "`cluster.podNodeSelector: Enabled`, see placement.md, Default node selectors of namespaces",
        &[EngineSign::Namespaces(|it| {
            let stated = it.namespace.stated_selectors.openshift.as_ref();
            it.title_if(it.is_on_openshift && stated.is_some_and(|selector| !selector.is_empty()))
        })],
    ),
    Engine {
        is_settled: true,
        ..engine(
            "PodTolerationRestriction",
            "a toleration that is not in the whitelist of the namespace, or of the cluster, causes an error 500 for the user",
            "Transom reads the annotation of the namespace, and adds only listed tolerations; name the whitelist of the plug-in's configuration file in `cluster.allowedTolerations`",
            &[EngineSign::Namespaces(|it| {
                it.title_if(it.namespace.tolerations_whitelist.is_some())
            })],
        )
    },
    Engine {
        is_settled: true,
        ..engine(
            "AKS Admissions Enforcer",
            "it rewrites the selectors of webhooks",
            "the configurations carry `admissions.enforcer/disabled`",
            &[EngineSign::Platform("aks")],
        )
    },
    engine(
        "Argo CD, Flux",
        "they report a difference in `caBundle`",
        "`ignoreDifferences` of `caBundle`",
        &[
            EngineSign::Groups(&["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"]),
            EngineSign::Objects("argoproj.io", "applications", &["*"]),
        ],
    ),
    engine(
        "cluster-autoscaler, Karpenter",
        "pools at zero nodes show no taints and builds",
        "`nodePools`",
        &[EngineSign::Groups(&["karpenter.sh"]), EngineSign::Autoscaler],
    ),
];

/// The kinds whose names are read, by group and resource, where the API server has the group.
pub fn objects() -> Vec<(&'static str, &'static str)> {
    let mut objects = Vec::new();
    for sign in ENGINES.iter().flat_map(|engine| engine.signs) {
        if let EngineSign::Objects(group, resource, _) = sign
            && !objects.contains(&(*group, *resource))
        {
            objects.push((*group, *resource));
        }
    }
    objects
}

impl EngineSign {
    /// What in the cluster shows it.
    fn evidence(&self, input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<String> {
        let environment = input.environment;
        match self {
            EngineSign::Groups(groups) => (groups.iter())
                .filter(|group| environment.groups.contains_key(**group))
                .map(|group| format!("API group {group}"))
                .collect(),
            EngineSign::Hooks(parts) => (environment.hooks.iter())
                .filter(|hooks| parts.iter().any(|part| hooks.name.contains(part)))
                .map(title)
                .collect(),
            EngineSign::Objects(group, resource, wanted) => {
                let names = environment.named.get(&format!("{group}/{resource}"));
                (names.into_iter().flatten())
                    .filter(|name| wanted.iter().any(|wanted| is_named(name, wanted)))
                    .map(|name| format!("{resource} {name}"))
                    .collect()
            }
            EngineSign::Platform(name) if input.platform.name == *name => {
                input.platform.evidence_texts.clone()
            }
            EngineSign::Platform(_) => Vec::new(),
            EngineSign::Namespaces(shown) => (input.snapshot.cache.namespaces.iter())
                .filter_map(|(name, namespace)| {
                    shown(&NamespaceInput {
                        name,
                        namespace,
                        has_windows_workloads: workloads.in_namespaces.contains_key(name),
                        is_on_openshift: input.snapshot.cache.has_scc,
                    })
                })
                .collect(),
            EngineSign::Autoscaler => (environment.autoscaler.iter())
                .map(|_| "ConfigMap kube-system/cluster-autoscaler-status".to_owned())
                .collect(),
        }
    }
}

fn is_named(name: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == wanted,
    }
}

impl Engine {
    /// The finding about an engine that is installed.
    fn finding(&self, evidence: Vec<String>) -> PreflightFinding {
        let is_nothing = matches!(self.ends, "" | "nothing");
        PreflightFinding {
            status: if is_nothing || self.is_settled {
                FindingStatus::Ok
            } else {
                FindingStatus::ActionRequired
            },
            remedy: (!is_nothing).then(|| self.ends.to_owned()),
            ..PreflightFinding::fine(format!("{}: {}", self.who, self.clash))
        }
        .by(evidence)
    }
}

/// A webhook configuration by kind and name.
fn title(hooks: &WebhookPresence) -> String {
    let kind = if hooks.is_mutating {
        "MutatingWebhookConfiguration"
    } else {
        "ValidatingWebhookConfiguration"
    };
    format!("{kind} {}", hooks.name)
}

/// The findings about the installed engines.
pub fn findings(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for engine in &ENGINES {
        let signs = engine.signs.iter();
        let evidence: Vec<String> = signs.flat_map(|sign| sign.evidence(input, workloads)).collect();
        if !evidence.is_empty() {
            listed.extend(evidence.iter().cloned());
            all.push(engine.finding(evidence));
        }
    }
    let hooks = input.environment.hooks.iter();
    all.extend(hooks.filter_map(|hooks| of_other_hooks(hooks, &listed)));
    all.extend(namespaces_not_known(input, workloads));
    all.extend(bound_policies(input));
    let read = [
        "API groups",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
        "namespaces",
        AUTOSCALER_STATUS,
    ];
    let named = objects().into_iter().map(|(_, resource)| resource);
    let read: Vec<&str> = read.into_iter().chain(named).collect();
    let ending = PreflightFinding::ending(&all, input.unread(&read), "none known to conflict");
    all.extend(ending);
    all
}

/// The finding about webhooks that change pods, if they belong to no engine of the table or are called after Transom.
fn of_other_hooks(hooks: &WebhookPresence, listed: &BTreeSet<String>) -> Option<PreflightFinding> {
    let own = configuration_name("transom");
    let (name, title) = (&hooks.name, title(hooks));
    if !hooks.is_mutating || !hooks.sees_pods || *name == own {
        return None;
    }
    let finding = if *name > own {
        PreflightFinding::act(
            format!("{name} is called after {own}: only /validate sees what it adds to a pod"),
            format!("if it changes Windows pods, give it a name that sorts before {own}"),
        )
    } else if listed.contains(&title) {
        return None;
    } else {
        PreflightFinding::fine(format!(
            "{name} changes pods; what it changes in Windows pods is not known"
        ))
    };
    Some(finding.by([title]))
}

/// Namespaces that the values would exclude, if it were known that they contain no Windows workloads.
fn namespaces_not_known(
    input: ClusterInput<'_>,
    workloads: &WorkloadFindings<'_>,
) -> Option<PreflightFinding> {
    let namespaces = webhook_namespaces(input, workloads);
    let not_known = workloads.not_known().filter(|_| !namespaces.is_empty())?;
    let text = format!(
        "not known whether the namespaces of webhooks that pod creation waits for contain Windows workloads ({not_known}), \
         so the values do not exclude them"
    );
    let remedy = "run this again when this is known; or add those without Windows workloads to \
                  webhooks.excludedNamespaces yourself";
    let by = namespaces.keys().map(|name| format!("namespace {name}"));
    Some(PreflightFinding::act(text, remedy).by(by))
}

fn bound_policies(input: ClusterInput<'_>) -> Option<PreflightFinding> {
    let names = input.environment.bindings.iter();
    let names: Vec<String> = names
        .filter(|name| !name.contains("transom"))
        .map(|name| format!("ValidatingAdmissionPolicyBinding {name}"))
        .collect();
    let text = format!(
        "{} ValidatingAdmissionPolicies are bound; they apply in addition to Transom",
        names.len()
    );
    (!names.is_empty()).then(|| PreflightFinding::fine(text).by(names))
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
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/explanation/placement.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("\n## Other admission controllers\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
        let rows: Vec<Vec<String>> = rows
            .map(|row| row.trim_matches('|').split('|').map(cell).collect())
            .collect();
        let table: Vec<Vec<String>> = ENGINES
            .iter()
            .map(|engine| [engine.who, engine.clash, engine.ends].map(str::to_owned).into())
            .collect();
        assert_eq!(table, rows);
        for engine in &ENGINES {
            assert!(!engine.signs.is_empty(), "{} has no sign", engine.who);
        }
    }
}
