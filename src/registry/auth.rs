//! Parses the authentication challenge of a registry, `WWW-Authenticate: Bearer
//! realm="…",service="…",scope="…"`, and builds the URL of the anonymous token for it.

use hyper::Uri;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Where to request a token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AuthChallenge {
    realm: String,
    service: Option<String>,
    scope: Option<String>,
}

impl AuthChallenge {
    /// Parses a header; `None` if it requires something other than a token.
    pub fn parse(header: &str) -> Option<AuthChallenge> {
        let (scheme, mut rest) = header.trim_start().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut challenge = AuthChallenge::default();
        while let Some((key, after)) = rest.split_once('=') {
            let (value, after) = value(after);
            let key = key.trim_matches([' ', ',']);
            if key.eq_ignore_ascii_case("realm") {
                challenge.realm = value;
            } else if key.eq_ignore_ascii_case("service") {
                challenge.service = Some(value);
            } else if key.eq_ignore_ascii_case("scope") {
                challenge.scope = Some(value);
            }
            rest = after;
        }
        (!challenge.realm.is_empty()).then_some(challenge)
    }

    /// The URL of a token with read access to this repository.
    pub fn uri(&self, repository: &str) -> Option<Uri> {
        let pull = || format!("repository:{repository}:pull");
        let scope = self.scope.clone().unwrap_or_else(pull);
        let encoded = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let service = self.service.as_deref();
        let service = service.map_or_else(String::new, |it| format!("service={}&", encoded(it)));
        let (realm, scope) = (&self.realm, encoded(&scope));
        let sign = if realm.contains('?') { '&' } else { '?' };
        format!("{realm}{sign}{service}scope={scope}").parse().ok()
    }
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
        AuthChallenge::parse(header)?
            .uri("library/nginx")
            .map(|uri| uri.to_string())
    }

    #[test]
    fn what_docker_hub_demands_is_read() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#;
        let expected = "https://auth.docker.io/token?service=registry%2Edocker%2Eio&scope=repository%3Alibrary%2Fnginx%3Apull";
        assert_eq!(address(header).as_deref(), Some(expected));
    }

    #[test]
    fn spaces_commas_and_letters_of_other_case_are_read() {
        let header = r#"bearer Realm="https://a.example/t?x=1", scope="repository:a:pull,push", error="invalid \"x\"""#;
        assert_eq!(
            address(header).as_deref(),
            Some("https://a.example/t?x=1&scope=repository%3Aa%3Apull%2Cpush")
        );
        assert_eq!(
            address("Bearer realm=https://a.example/t").as_deref(),
            Some("https://a.example/t?scope=repository%3Alibrary%2Fnginx%3Apull")
        );
    }

    #[test]
    fn another_demand_is_no_token() {
        for header in [
            r#"Basic realm="x""#,
            "Bearer",
            "Bearer service=\"x\"",
            "",
            "Bearer realm=\"",
            "Negotiate",
        ] {
            assert_eq!(AuthChallenge::parse(header), None, "{header}");
        }
        assert_eq!(address(r#"Bearer realm="no address""#), None);
    }
}
