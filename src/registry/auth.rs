//! Parses the authentication challenge of a registry, `WWW-Authenticate: Bearer realm="…",service="…",scope="…"`, and
//! decides where a credential may be sent.

use hyper::Uri;
use hyper::header::{HeaderMap, WWW_AUTHENTICATE};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// What a registry demands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Challenge {
    /// A token of a token service.
    Bearer(TokenService),
    /// User and password in each request.
    Basic,
}

/// The address that issues tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TokenService {
    realm: String,
    service: Option<String>,
    scope: Option<String>,
}

/// Token services on another host than the registry, which their operators document.
static TOKEN_HOSTS: &[(&str, &str)] = &[
    ("docker.io", "auth.docker.io"),
    ("registry.digitalocean.com", "api.digitalocean.com"),
];

impl Challenge {
    /// The challenge of a response: a token rather than a password.
    pub fn of(headers: &HeaderMap) -> Option<Challenge> {
        let headers = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|header| header.to_str().ok());
        let all: Vec<Challenge> = headers.filter_map(Challenge::parse).collect();
        let token = all
            .iter()
            .find(|challenge| matches!(challenge, Challenge::Bearer(_)));
        token.or(all.first()).cloned()
    }

    /// Parses a header; `None` if it requires something else.
    fn parse(header: &str) -> Option<Challenge> {
        let header = header.trim_start();
        let (scheme, mut rest) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut service = TokenService::default();
        while let Some((key, after)) = rest.split_once('=') {
            let (value, after) = value(after);
            let key = key.trim_matches([' ', ',']);
            if key.eq_ignore_ascii_case("realm") {
                service.realm = value;
            } else if key.eq_ignore_ascii_case("service") {
                service.service = Some(value);
            } else if key.eq_ignore_ascii_case("scope") {
                service.scope = Some(value);
            }
            rest = after;
        }
        (!service.realm.is_empty()).then_some(Challenge::Bearer(service))
    }
}

impl TokenService {
    /// The URL that issues tokens.
    pub fn realm(&self) -> Option<Uri> {
        self.realm.parse().ok()
    }

    /// The URL of a token with read access to this repository.
    pub fn uri(&self, repository: &str) -> Option<Uri> {
        let sign = if self.realm.contains('?') { '&' } else { '?' };
        format!("{}{sign}{}", self.realm, self.query(repository))
            .parse()
            .ok()
    }

    /// Service and scope, as in a URL or a form.
    pub fn query(&self, repository: &str) -> String {
        let encoded = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let service = self.service.as_deref();
        let service = service.map_or_else(String::new, |it| format!("service={}&", encoded(it)));
        format!("{service}scope={}", encoded(&self.read_scope(repository)))
    }

    /// The scope that the registry asks for, with read access only: a registry that asks for more gets no token for it.
    fn read_scope(&self, repository: &str) -> String {
        let scope = self.scope.as_deref().unwrap_or_default();
        if let Some(name) = scope
            .strip_prefix("repository:")
            .and_then(|rest| rest.rsplit_once(':'))
            && !scope.contains(' ')
        {
            return format!("repository:{}:pull", name.0);
        }
        // A word of the registry's own, such as `aws` on public.ecr.aws.
        if !scope.is_empty() && !scope.contains([':', ' ']) {
            return scope.to_owned();
        }
        format!("repository:{repository}:pull")
    }
}

/// Whether the token service of a registry may be sent the registry's credential: it is on the same host, on a subdomain
/// or a parent domain of it, or known to belong to it. Two names under one domain can belong to two owners, as in
/// `azurecr.io`.
pub(super) fn is_trusted_with_credential(registry: &str, host: &str, realm: &Uri) -> bool {
    let Some(realm) = realm.host() else { return false };
    let (host, realm) = (host.to_ascii_lowercase(), realm.to_ascii_lowercase());
    let is_under = |name: &str, domain: &str| {
        domain.contains('.') && name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    let is_name = |host: &str| !host.starts_with('[') && host.parse::<std::net::IpAddr>().is_err();
    host == realm
        || TOKEN_HOSTS.contains(&(registry, &realm))
        || (is_name(&host) && is_name(&realm) && (is_under(&host, &realm) || is_under(&realm, &host)))
}

/// A value, quoted or not, and the text after it.
fn value(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.trim_end().to_owned(), rest);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(header: &str) -> Option<String> {
        match Challenge::parse(header)? {
            Challenge::Bearer(service) => Some(service.uri("library/nginx")?.to_string()),
            Challenge::Basic => None,
        }
    }

    #[test]
    fn what_docker_hub_demands_is_read() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#;
        let expected = "https://auth.docker.io/token?service=registry%2Edocker%2Eio&scope=repository%3Alibrary%2Fnginx%3Apull";
        assert_eq!(address(header).as_deref(), Some(expected));
    }

    #[test]
    fn spaces_commas_and_letters_of_other_case_are_read() {
        let header =
            r#"bearer Realm="https://a.example/t?x=1", scope="repository:a:pull", error="invalid \"x\"""#;
        assert_eq!(
            address(header).as_deref(),
            Some("https://a.example/t?x=1&scope=repository%3Aa%3Apull")
        );
        assert_eq!(
            address("Bearer realm=https://a.example/t").as_deref(),
            Some("https://a.example/t?scope=repository%3Alibrary%2Fnginx%3Apull")
        );
    }

    #[test]
    fn a_token_is_for_reading_only() {
        let own = "repository%3Alibrary%2Fnginx%3Apull";
        for (scope, expected) in [
            ("repository:a:pull,push,delete", "repository%3Aa%3Apull"),
            ("repository:a:*", "repository%3Aa%3Apull"),
            ("repository:a:pull repository:b:push", own),
            ("registry:catalog:*", own),
            ("", own),
            ("aws", "aws"),
        ] {
            let header = format!(r#"Bearer realm="https://a.example/t",scope="{scope}""#);
            let expected = format!("https://a.example/t?scope={expected}");
            assert_eq!(address(&header), Some(expected), "{scope}");
        }
    }

    #[test]
    fn another_demand_is_no_token() {
        for header in [
            "Bearer",
            "Bearer service=\"x\"",
            "",
            "Bearer realm=\"",
            "Negotiate",
        ] {
            assert_eq!(Challenge::parse(header), None, "{header}");
        }
        for header in [r#"Basic realm="x""#, "basic"] {
            assert_eq!(Challenge::parse(header), Some(Challenge::Basic), "{header}");
        }
        assert_eq!(address(r#"Bearer realm="no address""#), None);
    }

    #[test]
    fn of_several_demands_the_one_for_a_token_is_met() {
        let mut headers = HeaderMap::new();
        headers.append(WWW_AUTHENTICATE, r#"Basic realm="x""#.parse().unwrap());
        assert_eq!(Challenge::of(&headers), Some(Challenge::Basic));
        headers.append(
            WWW_AUTHENTICATE,
            r#"Bearer realm="https://a.example""#.parse().unwrap(),
        );
        assert!(matches!(Challenge::of(&headers), Some(Challenge::Bearer(_))));
    }

    #[test]
    fn a_credential_goes_to_token_services_of_the_same_owner() {
        let may = |registry: &str, realm: &str| {
            let host = if registry == "docker.io" {
                "registry-1.docker.io"
            } else {
                registry
            };
            is_trusted_with_credential(registry, host, &format!("https://{realm}/token").parse().unwrap())
        };
        for (registry, realm) in [
            ("docker.io", "auth.docker.io"),
            ("shop.azurecr.io", "shop.azurecr.io"),
            ("registry.corp.example", "registry.corp.example:5001"),
            ("registry.gitlab.com", "gitlab.com"),
            ("corp.example", "Auth.corp.example"),
            ("10.0.0.5", "10.0.0.5"),
        ] {
            assert!(may(registry, realm), "{registry} {realm}");
        }
        for (registry, realm) in [
            ("shop.azurecr.io", "other.azurecr.io"),
            ("registry.corp.example", "tokens.other.example"),
            ("registry.corp.example", "example"),
            ("corp.example", "evilcorp.example"),
            ("other.io", "auth.docker.io"),
            ("10.0.0.5", "5.10.0.0.5"),
            ("1.10.0.0.5", "10.0.0.5"),
        ] {
            assert!(!may(registry, realm), "{registry} {realm}");
        }
    }
}
