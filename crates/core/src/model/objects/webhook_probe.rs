//! The probe: a pod that the leader creates as a dry run, to check whether the API server's calls arrive; its content,
//! and the answer to it.

/// The annotation of a probe: a token that its answer repeats, so that no other answer matches.
pub const PROBE_ANNOTATION: &str = "transom.dev/probe";
/// The annotation that `/mutate` adds to a probe, with the same token and the installation.
pub const PROBED_ANNOTATION: &str = "transom.dev/probed";

/// The value of [`PROBED_ANNOTATION`]: the token, and the installations whose `/mutate` has seen the probe, each as
/// `NAMESPACE/NAME`. `before`: its value so far.
pub fn mark(word: &str, before: Option<&str>, installation: &str) -> String {
    match before.and_then(|before| before.strip_prefix(word)) {
        Some(seen) if seen.split(' ').any(|one| one == installation) => format!("{word}{seen}"),
        seen => format!("{word}{} {installation}", seen.unwrap_or_default()),
    }
}

/// The installations of a mark with this token.
pub fn marked_by<'m>(word: &str, mark: Option<&'m str>) -> Vec<&'m str> {
    let seen = mark.and_then(|mark| mark.strip_prefix(word)?.strip_prefix(' '));
    seen.map_or_else(Vec::new, |seen| seen.split(' ').collect())
}

/// The message with which `/validate` rejects a probe. `mark`: the value of [`PROBED_ANNOTATION`].
pub fn rejection_message(word: &str, mark: Option<&str>) -> String {
    format!(
        "transom-probe {word} mutated by [{}]",
        marked_by(word, mark).join(" ")
    )
}

/// Whether a text contains the rejection of a probe, with any token.
pub fn is_rejection(text: &str) -> bool {
    text.contains("transom-probe ")
}

/// Parses the output of [`rejection_message`] inside the API server's message: the installations whose `/mutate` has
/// seen the probe. `None`: this is not the answer to the probe.
pub fn parse_rejection<'t>(text: &'t str, word: &str) -> Option<Vec<&'t str>> {
    let (_, rest) = text.split_once(&format!("transom-probe {word} mutated by ["))?;
    let (installations, _) = rest.split_once(']')?;
    Some(installations.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written_and_another_word_is_another_probe() {
        for mutated_by in [vec!["s/a", "s/b"], vec!["s/a"], vec![]] {
            let all = mutated_by.iter();
            let marked = all.fold(None, |before, one| Some(mark("a1", before.as_deref(), one)));
            let wrapped = format!(
                "admission webhook \"x\" denied the request: {}",
                rejection_message("a1", marked.as_deref())
            );
            assert_eq!(parse_rejection(&wrapped, "a1"), Some(mutated_by));
            assert_eq!(parse_rejection(&wrapped, "b1"), None);
        }
    }

    #[test]
    fn an_installation_that_is_called_again_marks_a_probe_once() {
        assert_eq!(mark("a1", Some("a1 s/a s/b"), "s/a"), "a1 s/a s/b");
        assert_eq!(mark("a1", Some("another s/b"), "s/a"), "a1 s/a");
        assert_eq!(marked_by("a1", Some("a11 s/b")), [""; 0]);
    }
}
