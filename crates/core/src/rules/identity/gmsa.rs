//! Group-managed service accounts (gMSA): the two fields of a container's or a pod's Windows options.

use super::{OPTIONS_SOURCE, option_at, windows_options};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::objects::pod::WindowsOptions;
use crate::model::objects::workload::Kind;
use crate::model::syntax::dns::is_subdomain;
use crate::model::syntax::suggest::nearest;
use crate::model::syntax::text::{list, shown};
use crate::rules::rule::{Check, Rule};

/// How many known names a message lists.
const NAMED: usize = 5;
const GMSA: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/configure-gmsa/";
const MERGE_SOURCE: &str = "kubernetes: pkg/securitycontext/util.go, DetermineEffectiveSecurityContext";

pub(super) static GMSA_NAME_SYNTAX: Rule = Rule {
    id: "TSM309",
    name: "gmsa-name-syntax",
    class: Class::ApiAlways,
    kubernetes: 14..=Rule::STILL,
    summary: "gmsaCredentialSpecName is not a valid Kubernetes object name",
    docs: "The field is the name of a GMSACredentialSpec object, so it must be a lower-case RFC 1123 subdomain: \
           letters, digits, hyphens and dots, 253 bytes at most. The API server rejects anything else, including the \
           `gmsa-WebApp1` of the Kubernetes documentation.",
    remedy: "write the name of a GMSACredentialSpec object: lower-case letters, digits, hyphens and dots",
    see: &[GMSA, OPTIONS_SOURCE],
    bad: &[
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: gmsa-WebApp1}}",
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: ''}}",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {gmsaCredentialSpecName: web_app}}}]",
    ],
    good: &[
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: gmsa-webapp1.example.com}}",
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: null}}",
    ],
    needs: FieldSet::GMSA_NAME,
    check: Check::Pod(|cx, out| {
        for (container, options) in windows_options(cx) {
            let Some(name) = options.gmsa_credential_spec_name.as_deref() else {
                continue;
            };
            if !is_subdomain(name) {
                let message = format!("\"{}\" is not a lower-case RFC 1123 subdomain", shown(name));
                out.report(option_at(cx, container, "gmsaCredentialSpecName"))
                    .message(message);
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static GMSA_SPEC_SIZE: Rule = Rule {
    id: "TSM310",
    name: "gmsa-spec-size",
    class: Class::ApiAlways,
    kubernetes: 14..=Rule::STILL,
    summary: "gmsaCredentialSpec is empty or larger than 64 KiB",
    docs: "The field contains the credential spec itself. The API server does not parse it, but rejects an empty value \
           and one of more than 65,536 bytes. The windows-gmsa webhook is supposed to fill in the field.",
    remedy: "set gmsaCredentialSpecName only; the windows-gmsa webhook sets gmsaCredentialSpec",
    see: &[GMSA, OPTIONS_SOURCE],
    bad: &[
        "securityContext: {windowsOptions: {gmsaCredentialSpec: ''}}",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {gmsaCredentialSpec: ''}}}]",
    ],
    good: &[
        "securityContext: {windowsOptions: {gmsaCredentialSpec: '{\"CmsPlugins\": [\"ActiveDirectory\"]}'}}",
    ],
    needs: FieldSet::GMSA_SPEC,
    check: Check::Pod(|cx, out| {
        for (container, options) in windows_options(cx) {
            let Some(spec) = options.gmsa_credential_spec.as_deref() else {
                continue;
            };
            if let Some(problem) = gmsa_spec_problem(spec) {
                out.report(option_at(cx, container, "gmsaCredentialSpec"))
                    .message(problem);
            }
        }
    }),
    ..Rule::BASE
};

/// Why the API server rejects a credential spec.
fn gmsa_spec_problem(spec: &str) -> Option<&'static str> {
    const MOST: usize = 64 * 1024;
    match spec.len() {
        0 => Some("gmsaCredentialSpec is empty"),
        size if size > MOST => Some("gmsaCredentialSpec is larger than 64 KiB"),
        _ => None,
    }
}

pub(super) static GMSA_NAME_UNRESOLVED: Rule = Rule {
    id: "TSM311",
    name: "gmsa-name-unresolved",
    severity: Severity::Warning,
    class: Class::Ignored,
    kubernetes: 14..=Rule::STILL,
    stored_only: true,
    summary: "the credential spec of this gMSA name was not filled in",
    docs: "The kubelet uses gmsaCredentialSpec only. With the name alone, the container runs without the domain \
           account. The windows-gmsa webhook copies the content of the named GMSACredentialSpec object into \
           gmsaCredentialSpec. The rule checks pods after every mutating webhook, so the content should be there. \
           Templates are never filled in: the rule reports a workload only if the cluster does not have the kind \
           GMSACredentialSpec, because then its pods are not filled in either. A container that sets either of the two \
           fields replaces both fields of the pod.",
    remedy: "install the windows-gmsa webhook, and make sure that it covers this namespace",
    see: &[
        GMSA,
        MERGE_SOURCE,
        "kubernetes: pkg/kubelet/kuberuntime/kuberuntime_container_windows.go",
    ],
    bad: &[
        "# --stored\nsecurityContext: {windowsOptions: {gmsaCredentialSpecName: web}}",
        "# --stored\ncontainers: [{name: app, image: app, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}}]",
        "# --stored\n\
         securityContext: {windowsOptions: {gmsaCredentialSpecName: web, gmsaCredentialSpec: '{}'}}\n\
         containers: [{name: app, image: app, securityContext: {windowsOptions: {gmsaCredentialSpecName: other}}}]",
    ],
    good: &[
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}",
        "# --stored\nsecurityContext: {windowsOptions: {gmsaCredentialSpecName: web, gmsaCredentialSpec: '{}'}}",
        "# --stored\n\
         securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}\n\
         containers: [{name: app, image: app, securityContext: {windowsOptions: {gmsaCredentialSpec: '{}'}}}]",
        "# --stored\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: web, image: web}]}}}}",
    ],
    needs: FieldSet::GMSA_NAME,
    check: Check::Pod(|cx, out| {
        let is_template = cx.subject.kind != Kind::Pod;
        if is_template && cx.facts.has_gmsa != Some(false) {
            return;
        }
        let mut report = |path| {
            let finding = out.report(path);
            if is_template {
                finding.message(
                    "the cluster does not have the kind GMSACredentialSpec, so the credential spec of its pods will not be filled in",
                );
            }
        };
        let is_unresolved = |options: &WindowsOptions<'_>| {
            options.gmsa_credential_spec_name.is_some() && options.gmsa_credential_spec.is_none()
        };
        let mut inherited = false;
        for container in cx.containers() {
            let own = container.windows_options().filter(|options| {
                options.gmsa_credential_spec_name.is_some() || options.gmsa_credential_spec.is_some()
            });
            match own {
                Some(pair) if is_unresolved(pair) => {
                    report(option_at(cx, Some(container), "gmsaCredentialSpecName"));
                }
                Some(_) => {}
                None => inherited = true,
            }
        }
        if inherited && cx.spec.windows_options().is_some_and(is_unresolved) {
            report(option_at(cx, None, "gmsaCredentialSpecName"));
        }
    }),
    ..Rule::BASE
};

pub(super) static GMSA_NAME_UNKNOWN: Rule = Rule {
    id: "TSM322",
    name: "gmsa-name-unknown",
    severity: Severity::Warning,
    class: Class::Run,
    kubernetes: 14..=Rule::STILL,
    summary: "no GMSACredentialSpec of the input has this name",
    docs: "gmsaCredentialSpecName is the name of a GMSACredentialSpec object. The windows-gmsa webhook rejects a pod that \
           names one that does not exist. The rule applies only if GMSACredentialSpecs are among the inputs of `check`, in \
           the same folder as the pod or in a file that describes the cluster, and the name is not one of theirs.",
    remedy: "write the name of a GMSACredentialSpec, or create one of this name",
    see: &[GMSA, "windows-gmsa: admission-webhook/webhook.go"],
    bad: &[
        "{apiVersion: windows.k8s.io/v1, kind: GMSACredentialSpec, metadata: {name: web}, credspec: {}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: webb}}, containers: [{name: app, image: app}]}}",
        "{apiVersion: windows.k8s.io/v1, kind: GMSACredentialSpec, metadata: {name: web}, credspec: {}}\n---\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {os: {name: windows}, containers: [{name: app, image: app, securityContext: {windowsOptions: {gmsaCredentialSpecName: billing}}}]}}}}",
    ],
    good: &[
        "securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}",
        "{apiVersion: windows.k8s.io/v1, kind: GMSACredentialSpec, metadata: {name: web}, credspec: {}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: {gmsaCredentialSpecName: web}}, containers: [{name: app, image: app}]}}",
    ],
    needs: FieldSet::GMSA_NAME,
    check: Check::Pod(|cx, out| {
        let known = cx.facts.credential_specs_for(cx.subject);
        if known.is_empty() {
            return;
        }
        for (container, options) in windows_options(cx) {
            let name = options.gmsa_credential_spec_name.as_deref();
            let Some(name) = name.filter(|name| is_subdomain(name) && !known.contains(name)) else {
                continue;
            };
            let near = nearest(name, known.iter().copied());
            let instead = near.map_or_else(
                || format!("the input has {}", list(&known, NAMED)),
                |near| format!("the nearest is {near}"),
            );
            out.report(option_at(cx, container, "gmsaCredentialSpecName"))
                .message(format!(
                    "no GMSACredentialSpec of the input is called \"{}\": {instead}",
                    shown(name)
                ));
        }
    }),
    ..Rule::BASE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_spec_has_1_to_65536_bytes() {
        assert_eq!(gmsa_spec_problem(""), Some("gmsaCredentialSpec is empty"));
        assert_eq!(gmsa_spec_problem("{"), None);
        assert_eq!(gmsa_spec_problem(&"x".repeat(65536)), None);
        let larger = Some("gmsaCredentialSpec is larger than 64 KiB");
        assert_eq!(gmsa_spec_problem(&"x".repeat(65537)), larger);
        assert_eq!(gmsa_spec_problem(&"é".repeat(32769)), larger);
    }
}
