//! The figures at the top of the page.

use std::collections::BTreeMap;

use crate::scan::DenialCause;
use crate::scan::report::ScanReport;

#[derive(PartialEq, Eq, Debug)]
pub(super) struct Card {
    /// The CSS class of its number; empty for an ordinary one.
    pub(super) class: &'static str,
    /// What is counted.
    pub(super) words: &'static str,
    pub(super) number: usize,
}

/// The figures of a report. What a policy only audits has its own figures if they differ: otherwise they repeat others.
pub(super) fn cards(report: &ScanReport) -> Vec<Card> {
    let card = |class, words, number| Card { class, words, number };
    let summary = &report.summary;
    let mut cards = vec![
        card("", "workloads evaluated", summary.owners),
        card("", "for Windows", summary.windows),
    ];
    let is_denied_alike = summary.denied_for == summary.would_be_denied_for;
    for cause in DenialCause::ALL {
        let count = |counts: &BTreeMap<DenialCause, usize>| counts.get(&cause).copied().unwrap_or_default();
        let [denied, would_be_denied] = denial_words(cause);
        let (now, then) = (count(&summary.denied_for), count(&summary.would_be_denied_for));
        let is_usual = cause != DenialCause::BestPractice;
        if now > 0 || is_usual {
            cards.push(card("error", denied, now));
        }
        if !is_denied_alike && (then > 0 || is_usual) {
            cards.push(card("warning", would_be_denied, then));
        }
    }
    cards.push(card("", "patched", summary.patched));
    if summary.would_be_patched != summary.patched {
        cards.push(card("", "patched without dry run", summary.would_be_patched));
    }
    cards.extend([
        card("", "pass with a warning", summary.warned),
        card("warning", "admission not called", summary.not_reviewed),
        card("error", "pods on a wrong node", summary.misplaced),
        card("warning", "pods that wait for a node", summary.pending),
    ]);
    if summary.terminating > 0 {
        cards.push(card("warning", "pods that do not end", summary.terminating));
    }
    cards.extend([
        card("", "Windows nodes", report.nodes.len()),
        card("", "objects read", summary.objects),
    ]);
    if summary.unreadable > 0 {
        cards.push(card("error", "objects not readable", summary.unreadable));
    }
    cards
}

/// The outcome of what is denied for a cause now, and of what would be in mode Enforce.
pub(super) fn denial_words(cause: DenialCause) -> [&'static str; 2] {
    match cause {
        DenialCause::CannotRun => ["denied: cannot run", "denied in mode Enforce: cannot run"],
        DenialCause::IgnoredFields => [
            "denied: only ignored fields",
            "denied in mode Enforce: only ignored fields",
        ],
        DenialCause::BestPractice => [
            "denied: only best practice",
            "denied in mode Enforce: only best practice",
        ],
    }
}
