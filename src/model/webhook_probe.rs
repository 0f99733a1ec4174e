//! The probe: a pod that the leader creates as a dry run, to check whether the API server's calls arrive; its content,
//! and the answer to it.

/// The annotation of a probe: a token that its answer repeats, so that no other answer matches.
pub const PROBE_ANNOTATION: &str = "transom.dev/probe";
/// The annotation that `/mutate` adds to a probe, with the same token.
pub const PROBED_ANNOTATION: &str = "transom.dev/probed";

/// The message with which `/validate` rejects a probe. `mutated`: whether `/mutate` has seen it before.
pub fn rejection_message(word: &str, mutated: bool) -> String {
    let seen = if mutated { "both" } else { "validate" };
    format!("transom-probe {word} seen by {seen}")
}

/// Whether a text contains the rejection of a probe, with any token.
pub fn is_rejection(text: &str) -> bool {
    text.contains("transom-probe ")
}

/// Parses the output of [`rejection_message`] inside the API server's message: whether `/mutate` has seen the probe
/// too. `None`: this is not the answer to the probe.
pub fn parse_rejection(text: &str, word: &str) -> Option<bool> {
    [true, false]
        .into_iter()
        .find(|mutated| text.contains(&rejection_message(word, *mutated)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written_and_another_word_is_another_probe() {
        for mutated in [true, false] {
            let wrapped = format!(
                "admission webhook \"x\" denied the request: {}",
                rejection_message("a1", mutated)
            );
            assert_eq!(parse_rejection(&wrapped, "a1"), Some(mutated));
            assert_eq!(parse_rejection(&wrapped, "b1"), None);
        }
    }
}
