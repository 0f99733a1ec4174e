//! The part of the match conditions that selects images of listed registries.
//!
//! It is complete: true for every image whose registry [`RegistryPatterns::matches`]. Of a pattern with several `*` it
//! compares what is before the first and after the last one, because the cost of `contains` grows with both texts. Each
//! pattern is compared once, and only with what can be a registry: the cost of `endsWith` grows with the text, too.

use super::{CONTAINERS, IMAGE, containers, quoted};
use crate::model::windows::registry_patterns::{
    DOCKER_HUB, DOCKER_HUB_ALIASES, LONGEST_REGISTRY, RegistryPattern, RegistryPatterns,
};

/// What the first part of a reference without a registry is not; `h` is that part in lower case.
const OF_DOCKER_HUB: &str = "\
!c.image.contains('/') || !h.contains('.') && !h.contains(':') && h != 'localhost'";

/// Whether a container of the pod has an image of a listed registry. A larger pod or a longer image is not inspected:
/// these are a sign of Windows.
pub(super) fn has_listed_image(registries: &RegistryPatterns) -> String {
    let tests: Vec<String> = registries.iter().map(is_on).collect();
    // No registry, no image: `exists` needs an expression.
    let tests = if tests.is_empty() {
        "false".to_owned()
    } else {
        tests.join("\n        || ")
    };
    format!(
        "[{}].exists(cs, cs.size() <= {CONTAINERS} && cs.exists(c, has(c.image) && c.image.size() <= {IMAGE}\n      \
         && [c.image.split('/', 2)[0].lowerAscii()].exists(h,\n        \
         [h.size() > {LONGEST_REGISTRY} ? '' : h].exists(r,\n        \
         [r.endsWith(':443') ? r.substring(0, r.size() - 4) : r].exists(g,\n        {tests})))))",
        containers()
    )
}

/// Whether a condition written by [`has_listed_image`] selects the images of a pattern.
pub(super) fn selects_registry(expression: &str, pattern: &RegistryPattern) -> bool {
    expression.contains(&is_on(pattern))
}

/// A test in parentheses, so that no test is a part of another one: of `g`, the registry without the default port; of `r`, the
/// registry; of `h`, the first part of an image.
fn is_on(pattern: &RegistryPattern) -> String {
    let (of, port) = match pattern.port() {
        Some(port) => ("r", format!(":{port}")),
        None => ("g", String::new()),
    };
    let with_port = |text: &str| quoted(&format!("{text}{port}"));
    let host = pattern.host();
    let Some((before, after)) = host.split_once('*') else {
        let mut names = vec![with_port(host)];
        let mut or_no_registry = String::new();
        if host == DOCKER_HUB && pattern.port().is_none() {
            names.extend(DOCKER_HUB_ALIASES.map(with_port));
            or_no_registry = format!(" || {OF_DOCKER_HUB}");
        }
        return format!("({of} in [{}]{or_no_registry})", names.join(", "));
    };
    let after = after.rsplit('*').next().unwrap_or_default();
    let starts = if before.is_empty() {
        String::new()
    } else {
        format!("{of}.startsWith({}) && ", quoted(before))
    };
    format!("({starts}{of}.endsWith({}))", with_port(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_of(pattern: &str) -> String {
        is_on(&pattern.parse().unwrap())
    }

    #[test]
    fn a_pattern_is_compared_by_its_fixed_beginning_and_end() {
        for (pattern, test) in [
            ("mcr.microsoft.com", "(g in ['mcr.microsoft.com'])"),
            ("registry.corp:5000", "(r in ['registry.corp:5000'])"),
            ("*.azurecr.io", "(g.endsWith('.azurecr.io'))"),
            (
                "registry.*.dkr.*.corp:5000",
                "(r.startsWith('registry.') && r.endsWith('.corp:5000'))",
            ),
        ] {
            assert_eq!(test_of(pattern), test, "{pattern}");
        }
        for alias in DOCKER_HUB_ALIASES {
            assert!(test_of("docker.io").contains(&quoted(alias)) && test_of(alias) == test_of("docker.io"));
        }
        assert!(test_of("docker.io").contains(OF_DOCKER_HUB));
        assert!(!test_of("docker.io:5000").contains(OF_DOCKER_HUB));
    }

    #[test]
    fn a_condition_selects_the_registries_that_it_was_made_for_and_no_others() {
        let list = RegistryPatterns::parse(["mcr.microsoft.com", "a.*.corp", "docker.io"]).unwrap();
        let condition = has_listed_image(&list);
        for pattern in list.iter() {
            assert!(selects_registry(&condition, pattern), "{pattern}");
        }
        for other in ["*.corp", "microsoft.com", "mcr.microsoft.com:5000", "index.io"] {
            assert!(!selects_registry(&condition, &other.parse().unwrap()), "{other}");
        }
        assert!(!selects_registry(
            &has_listed_image(&RegistryPatterns::default()),
            &"docker.io".parse().unwrap()
        ));
    }
}
