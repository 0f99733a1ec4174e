//! The user that a container runs as: names that the API server rejects, and the user that runAsNonRoot forbids.

use super::{OPTIONS_SOURCE, context_at, option_at, windows_options};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::model::syntax::dns::is_label;
use crate::model::syntax::text::shown;
use crate::rules::context::{ContainerAt, PodCx};
use crate::rules::rule::{Check, Reporter, Rule};

const RUN_AS_USER_NAME: &str =
    "https://kubernetes.io/docs/tasks/configure-pod-container/configure-runasusername/";

pub(super) static RUN_AS_USER_NAME_SYNTAX: Rule = Rule {
    id: "TSM312",
    name: "run-as-user-name-syntax",
    class: Class::ApiAlways,
    kubernetes: 16..=Rule::STILL,
    summary: "runAsUserName is not a valid Windows user name",
    docs: "The API server accepts `user` or `DOMAIN\\user`. The domain is a NetBIOS name (15 characters, no leading \
           period) or a DNS name of less than 256 bytes. The user has 104 bytes at most (the API server does not \
           enforce the documented limit of 20), contains more than periods and spaces, and contains none of \
           `\"/\\:;|=,+*?<>@[]`. Only the node knows whether the user exists. If it does not, the container fails with \
           `The user name or password is incorrect.`",
    remedy: r"write user or DOMAIN\user, such as ContainerUser or NT AUTHORITY\NETWORK SERVICE; user@domain is not accepted",
    see: &[RUN_AS_USER_NAME, OPTIONS_SOURCE],
    bad: &[
        "securityContext: {windowsOptions: {runAsUserName: ''}}",
        "securityContext: {windowsOptions: {runAsUserName: user@corp.example.com}}",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {runAsUserName: 'CORP\\web\\app'}}}]",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {runAsUserName: \"CORP\\tweb\"}}}]",
    ],
    good: &[
        r"securityContext: {windowsOptions: {runAsUserName: 'NT AUTHORITY\NETWORK SERVICE'}}",
        "securityContext: {windowsOptions: {runAsUserName: null}}",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {runAsUserName: 'corp.example.com\\web$'}}}]",
    ],
    needs: FieldSet::RUN_AS_USER_NAME,
    check: Check::Pod(|cx, out| {
        for (container, options) in windows_options(cx) {
            let Some(name) = options.run_as_user_name.as_deref() else {
                continue;
            };
            if let Some(problem) = user_name_problem(name) {
                let message = format!("the user name \"{}\" {problem}", shown(name));
                out.report(option_at(cx, container, "runAsUserName"))
                    .message(message);
            }
        }
    }),
    ..Rule::BASE
};

/// Why the API server rejects a `runAsUserName`: the first problem, in the order in which the API server checks.
///
/// Source: kubernetes `pkg/apis/core/validation/validation.go`, `validateWindowsSecurityContextOptions`.
fn user_name_problem(name: &str) -> Option<&'static str> {
    let is_only_periods_and_spaces = |user: &str| user.chars().all(|c| matches!(c, '.' | ' '));
    if name.is_empty() {
        return Some("is empty");
    }
    if name.bytes().any(|b| b.is_ascii_control()) {
        return Some("has a control character");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, user)) if user.contains('\\') => return Some("has more than one backslash"),
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    match domain {
        Some(domain) if domain.len() >= 256 => Some("has a domain of 256 bytes or more"),
        Some(domain) if !is_net_bios_name(domain) && !is_dns_name(domain) => {
            Some("has a domain that is neither a NetBIOS nor a DNS name")
        }
        _ if user.is_empty() => Some("has no user after its backslash"),
        _ if user.len() > 104 => Some("has a user of more than 104 bytes"),
        _ if is_only_periods_and_spaces(user) => Some("has a user of periods and spaces only"),
        _ if user.contains(|c| r#""/\:;|=,+*?<>@[]"#.contains(c)) => {
            Some(r#"has one of "/\:;|=,+*?<>@[] in its user"#)
        }
        _ => None,
    }
}

/// `^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`, counted in characters.
fn is_net_bios_name(domain: &str) -> bool {
    let forbidden = |c| r#"\/:*?"<>|"#.contains(c);
    let length = domain.chars().take(16).count();
    (1..=15).contains(&length) && !domain.starts_with('.') && !domain.contains(forbidden)
}

/// Labels of 1 to 63 letters, digits and inner hyphens, in either case.
fn is_dns_name(domain: &str) -> bool {
    domain
        .split('.')
        .all(|label| label.len() <= 63 && is_label(label))
}

pub(super) static RUN_AS_NON_ROOT_ADMINISTRATOR: Rule = Rule {
    id: "TSM313",
    name: "run-as-non-root-administrator",
    summary: "runAsNonRoot forbids the user ContainerAdministrator",
    docs: "The kubelet treats ContainerAdministrator (in any case) as root. If runAsNonRoot is in effect, the \
           container stays in CreateContainerConfigError. The container's own values take precedence over those of the \
           pod. The kubelet does not reject other powerful users, such as NT AUTHORITY\\SYSTEM, nor an image without a \
           user, which may then run as ContainerAdministrator.",
    remedy: "use ContainerUser, or remove runAsNonRoot",
    see: &[
        RUN_AS_USER_NAME,
        "kubernetes: pkg/kubelet/kuberuntime/security_context_windows.go",
    ],
    bad: &[
        "securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerAdministrator}}\n\
         containers: [{name: app, image: app}]",
        "containers: [{name: app, image: app, securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: containeradministrator}}}]",
        "securityContext: {runAsNonRoot: true}\n\
         containers: [{name: app, image: app, securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}}]",
        "securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}\n\
         containers: [{name: app, image: app, securityContext: {runAsNonRoot: true}}]",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 user=ContainerAdministrator\n{securityContext: {runAsNonRoot: true}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
    ],
    good: &[
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 user=ContainerAdministrator\n{securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerUser}}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 user=ContainerUser\n{securityContext: {runAsNonRoot: true}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
        "securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerUser}}",
        "securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerAdministrator}}",
        "securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerAdministrator}}\n\
         containers: [{name: app, image: app, securityContext: {runAsNonRoot: false}}]",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}}]",
        r"containers: [{name: app, image: app, securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: 'NT AUTHORITY\SYSTEM'}}}]",
    ],
    needs: FieldSet::RUN_AS_NON_ROOT,
    check: Check::Pod(|cx, out| {
        let mut inherited = false;
        for container in cx.containers() {
            let by_pod = cx.spec.run_as_user_name(container.container);
            if by_pod.is_none() && cx.spec.run_as_non_root(container.container) == Some(true) {
                report_user_of_image(cx, &container, out);
            }
            if !by_pod.is_some_and(is_administrator)
                || cx.spec.run_as_non_root(container.container) != Some(true)
            {
                continue;
            }
            // Report at the field that the container sets itself, because that is the field to change.
            if container
                .windows_options()
                .is_some_and(|options| options.run_as_user_name.is_some())
            {
                out.report(option_at(cx, Some(container), "runAsUserName"));
            } else if container.security_context.run_as_non_root.is_some() {
                out.report(context_at(cx, Some(container), &["runAsNonRoot"]));
            } else {
                inherited = true;
            }
        }
        if inherited {
            out.report(option_at(cx, None, "runAsUserName"));
        }
    }),
    ..Rule::BASE
};

pub(super) static RUN_AS_USER_NAME_NUMBER: Rule = Rule {
    id: "TSM321",
    name: "run-as-user-name-number",
    severity: Severity::Warning,
    kubernetes: 16..=Rule::STILL,
    summary: "runAsUserName is a number, but Windows users have names",
    docs: "The API server accepts digits as the name of a user. On Linux a number is a user ID, but Windows searches \
           for a user with that name, and images have none. The container fails with `The user name or password is \
           incorrect.` Images of Windows have the users `ContainerUser`, with few rights, and \
           `ContainerAdministrator`.",
    remedy: "write ContainerUser, or ContainerAdministrator instead of 0",
    see: &[RUN_AS_USER_NAME],
    bad: &[
        "securityContext: {windowsOptions: {runAsUserName: '1000'}}",
        "containers: [{name: app, image: app, securityContext: {windowsOptions: {runAsUserName: '0'}}}]",
    ],
    good: &[
        "securityContext: {windowsOptions: {runAsUserName: ContainerUser}}",
        "securityContext: {windowsOptions: {runAsUserName: S-1-5-18}}",
        "securityContext: {windowsOptions: {runAsUserName: user1000}}",
    ],
    needs: FieldSet::RUN_AS_USER_NAME,
    check: Check::Pod(|cx, out| {
        for (container, options) in windows_options(cx) {
            let name = options.run_as_user_name.as_deref().unwrap_or_default();
            if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
                let message = format!(
                    "the user name \"{}\" is a number, but Windows users have names",
                    shown(name)
                );
                let finding = out.report(option_at(cx, container, "runAsUserName"));
                finding.message(message);
                if cx.spec.has_host_process() {
                    finding.remedy("write NT AUTHORITY\\Local service or another account of the node");
                }
            }
        }
    }),
    ..Rule::BASE
};

pub(super) static CONTAINER_USER_IIS: Rule = Rule {
    id: "TSM323",
    name: "container-user-iis",
    severity: Severity::Warning,
    summary: "images of IIS do not start as ContainerUser",
    docs: "Microsoft's images of IIS, ASP.NET and WCF start `ServiceMonitor.exe`, which controls the Windows service \
           `w3svc`. ContainerUser is not allowed to do that: the container ends with `Failed to stop or query status \
           of service 'w3svc' error [80070005]`, and Kubernetes starts it again and again. The programs of a web site \
           do not run as the user of the container, but as the identity of its application pool. A container with its \
           own `command` does not start `ServiceMonitor.exe`, and is not reported. Images that are built on one of \
           these are recognized only by their name.",
    remedy: "set runAsUserName of this container to ContainerAdministrator; programs of the site keep the identity of their application pool",
    see: &[
        RUN_AS_USER_NAME,
        "https://github.com/microsoft/IIS.ServiceMonitor/issues/77",
        "https://learn.microsoft.com/iis/manage/configuring-security/application-pool-identities",
    ],
    bad: &[
        "containers: [{name: web, image: 'mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022', securityContext: {windowsOptions: {runAsUserName: ContainerUser}}}]",
        "{securityContext: {windowsOptions: {runAsUserName: containeruser}}, containers: [{name: web, image: 'mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2022'}]}",
    ],
    good: &[
        "containers: [{name: web, image: 'mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022'}]",
        "{securityContext: {windowsOptions: {runAsUserName: ContainerUser}}, containers: [{name: web, image: 'mcr.microsoft.com/dotnet/framework/wcf:4.8', securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}}]}",
        "containers: [{name: web, image: 'mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022', command: ['C:\\app\\app.exe'], securityContext: {windowsOptions: {runAsUserName: ContainerUser}}}]",
        "containers: [{name: app, image: 'mcr.microsoft.com/dotnet/framework/runtime:4.8', securityContext: {windowsOptions: {runAsUserName: ContainerUser}}}]",
    ],
    needs: FieldSet::RUN_AS_USER_NAME,
    check: Check::Pod(|cx, out| {
        let of_pod = |container: &ContainerAt<'_>| !cx.spec.is_host_process(container);
        for container in cx.containers().filter(of_pod) {
            let user = cx.spec.run_as_user_name(container.container);
            let is_container_user = user.is_some_and(|user| user.eq_ignore_ascii_case("ContainerUser"));
            let starts_iis = || {
                let image = cx.image(&container);
                container.command.is_empty()
                    && image.is_some_and(|image| image.reference.runs_service_monitor())
            };
            if is_container_user && starts_iis() {
                out.report(option_at(cx, Some(container), "runAsUserName"));
            }
        }
    }),
    ..Rule::BASE
};

/// Without `runAsUserName`, the kubelet compares the user that the image sets.
fn report_user_of_image(cx: &PodCx<'_>, container: &ContainerAt<'_>, out: &mut Reporter<'_>) {
    let image = cx
        .image(container)
        .filter(|image| image.user().is_some_and(is_administrator));
    if let Some(facts) = image.and_then(|image| image.facts) {
        out.report(option_at(cx, Some(*container), "runAsUserName"))
            .message(format!(
                "runAsNonRoot forbids the user ContainerAdministrator, which the image sets ({facts})"
            ))
            .remedy("set runAsUserName to ContainerUser, if the image can start as that user");
    }
}

/// `strings.EqualFold(name, "ContainerAdministrator")`: Go also folds the long s.
fn is_administrator(name: &str) -> bool {
    let fold = |c: char| if c == 'ſ' { 's' } else { c.to_ascii_lowercase() };
    name.chars().map(fold).eq("containeradministrator".chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_that_the_api_server_takes_pass() {
        let long = "u".repeat(104);
        let (label, labels) = (
            "d".repeat(63),
            format!(r"{0}.{0}.{0}.{1}\user", "d".repeat(63), "d".repeat(60)),
        );
        for name in [
            "ContainerAdministrator",
            "ContainerUser",
            r"NT AUTHORITY\NETWORK SERVICE",
            r"-bad.com\user",
            r"DOM AIN\user",
            " a",
            "user.",
            "S-1-5-18",
            r"CORP\gmsa$",
            "Container. User",
            r"Network Service\Container. User",
            r"fifteen_letters\user",
            r"ünïcödë_döm_äin\user",
            r"corp.example.com\user",
            &format!(r"{label}.com\user"),
            &labels,
            &long,
        ] {
            assert_eq!(user_name_problem(name), None, "{name}");
        }
    }

    #[test]
    fn user_names_that_the_api_server_refuses_are_reported_with_the_reason() {
        let neither = "has a domain that is neither a NetBIOS nor a DNS name";
        let characters = r#"has one of "/\:;|=,+*?<>@[] in its user"#;
        for (name, problem) in [
            ("", "is empty"),
            ("Container\tUser", "has a control character"),
            ("a\\b\\c\n", "has a control character"),
            ("user\u{7f}", "has a control character"),
            (r"a\b\c", "has more than one backslash"),
            (r"Container\Foo\Lish", "has more than one backslash"),
            (r"\\", "has more than one backslash"),
            (
                &format!(r"{}\user", "d".repeat(256)),
                "has a domain of 256 bytes or more",
            ),
            (&format!(r"{}\user", "d".repeat(255)), neither),
            (r"\user", neither),
            (r".dom\user", neither),
            (r".FooLish\User", neither),
            (r"Foo? Lish?\User", neither),
            (r"....com-\user", neither),
            (r"sixteen_letters_\user", neither),
            (r"sixteen-letters-\user", neither),
            (&format!(r"{}.com\user", "d".repeat(64)), neither),
            (r"dom\", "has no user after its backslash"),
            (&"u".repeat(105), "has a user of more than 104 bytes"),
            (&"ü".repeat(53), "has a user of more than 104 bytes"),
            ("... ...", "has a user of periods and spaces only"),
            (r"dom\ ", "has a user of periods and spaces only"),
            ("user@corp.com", characters),
            ("Container/User", characters),
            ("a[b", characters),
            ("a|b", characters),
        ] {
            assert_eq!(user_name_problem(name), Some(problem), "{name}");
        }
    }

    #[test]
    fn the_domain_is_evaluated_before_the_user_and_the_control_character_before_all() {
        assert_eq!(user_name_problem("\\\\\u{1}"), Some("has a control character"));
        let both = r".dom\user@corp";
        assert_eq!(
            user_name_problem(both),
            Some("has a domain that is neither a NetBIOS nor a DNS name")
        );
        // Go's [[:cntrl:]] matches the C0 set only.
        assert_eq!(user_name_problem("user\u{85}"), None);
    }

    #[test]
    fn the_administrator_is_known_in_any_case() {
        assert!(is_administrator("ContainerAdministrator") && is_administrator("CONTAINERADMINIſTRATOR"));
        assert!(!is_administrator("Administrator") && !is_administrator(r"BUILTIN\ContainerAdministrator"));
    }
}
