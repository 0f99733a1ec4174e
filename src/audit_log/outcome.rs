//! The information about Transom in one event.

use std::collections::BTreeSet;

use memchr::memmem::Finder;

use super::counts::RequestOutcome;
use super::event::AuditEvent;
use crate::model::objects::webhook_probe::is_rejection;

/// The suffix of the names of Transom's webhooks.
const OURS: &str = "transom.dev";

/// The API server's annotation keys for webhooks that failed open; the values are the webhook names.
const FAILED_OPEN: [&str; 2] = [
    "failed-open.validating.webhook.admission.k8s.io/",
    "failed-open.mutation.webhook.admission.k8s.io/",
];

/// The names of Transom's webhooks: the frozen names share one domain; the user can add others.
pub struct WebhookNames(Vec<(String, Finder<'static>)>);

impl WebhookNames {
    /// Transom's own names, and others, each complete or only its last labels.
    pub fn new(more: &[String]) -> Self {
        let names = [OURS.to_owned()].into_iter().chain(more.iter().cloned());
        let with_finder = |name: String| {
            let finder = Finder::new(name.as_bytes()).into_owned();
            (name, finder)
        };
        WebhookNames(names.map(with_finder).collect())
    }

    /// Whether a text may contain one of the names, without parsing it.
    pub fn may_be_in(&self, text: &[u8]) -> bool {
        self.0.iter().any(|(_, finder)| finder.find(text).is_some())
    }

    fn is_ours(&self, webhook: &str) -> bool {
        self.0.iter().any(|(name, _)| {
            let before = webhook.strip_suffix(name.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    }
}

/// The information about Transom in an event.
#[derive(Debug, Default)]
pub struct EventOutcome<'e> {
    outcomes: BTreeSet<RequestOutcome>,
    /// Whether a Transom webhook answered, or should have.
    was_reviewed: bool,
    /// The workload of the object, as in `Deployment web`.
    pub owner: Option<&'e str>,
    /// The rules that denied the request.
    pub denied_by: BTreeSet<&'e str>,
    /// The rules that would have denied it.
    pub would_deny: BTreeSet<&'e str>,
}

impl<'e> EventOutcome<'e> {
    /// Reads what an event says of Transom's webhooks.
    pub fn of(event: &'e AuditEvent<'_>, names: &WebhookNames) -> Self {
        let mut event_outcome = EventOutcome::default();
        let (mut rules, mut is_patched) = ("", false);
        for (key, value) in event.annotations() {
            if FAILED_OPEN.iter().any(|prefix| key.starts_with(prefix)) {
                event_outcome.note(RequestOutcome::FailedOpen, names.is_ours(value));
                continue;
            }
            let Some((_, key)) = key.split_once('/').filter(|(webhook, _)| names.is_ours(webhook)) else {
                continue;
            };
            event_outcome.was_reviewed = true;
            match (key, value) {
                ("decision", "patch") => is_patched = true,
                ("owner", owner) => event_outcome.owner = Some(owner),
                ("denied-by", names) => add(&mut event_outcome.denied_by, names),
                ("would-deny", names) => add(&mut event_outcome.would_deny, names),
                ("rules", names) => rules = names,
                (key, value) => event_outcome.note_annotation(key, value),
            }
        }
        event_outcome.read_failure(event, names);
        event_outcome.conclude(event, rules, is_patched);
        event_outcome
    }

    /// Notes the outcome that an annotation of Transom states.
    fn note_annotation(&mut self, key: &str, value: &str) {
        let outcome = match (key, value) {
            ("decision", "deny") => RequestOutcome::Denied,
            ("not-evaluated", _) => RequestOutcome::NotEvaluated,
            ("would-patch", _) => RequestOutcome::WouldPatch,
            ("removed", _) => RequestOutcome::Removed,
            ("withheld", _) => RequestOutcome::Withheld,
            ("exempted", _) => RequestOutcome::Exempted,
            ("owner-trusted", "false") => RequestOutcome::OwnerNotTrusted,
            _ => return,
        };
        self.note(outcome, true);
    }

    /// Adds what all annotations together mean. `rules`: the rules with findings, which deny if no others are named.
    fn conclude(&mut self, event: &AuditEvent<'_>, rules: &'e str, is_patched: bool) {
        // A denied request is not also counted as one that would be denied.
        let is_denied = self.had(RequestOutcome::Denied);
        if is_denied {
            self.would_deny.clear();
        }
        self.note(RequestOutcome::WouldDeny, !self.would_deny.is_empty());
        if is_denied && self.denied_by.is_empty() {
            add(&mut self.denied_by, rules);
        }
        let ours = is_denied || self.had(RequestOutcome::FailedClosed);
        let is_refused = self.was_reviewed && event.has_failed() && !ours;
        self.note(RequestOutcome::RefusedOtherwise, is_refused);
        self.note(RequestOutcome::Patched, is_patched && !event.has_failed());
        if event.has_failed() {
            // If the object was not stored, nothing was removed from it.
            self.outcomes.remove(&RequestOutcome::Removed);
            self.outcomes.remove(&RequestOutcome::Withheld);
        }
    }

    /// Reads the error message that the client received, if the webhook's annotations are missing.
    fn read_failure(&mut self, event: &AuditEvent<'_>, names: &WebhookNames) {
        let failure = event.failure();
        if event.is_dry_run() && is_rejection(failure) {
            return;
        }
        for (before, outcome) in [
            ("admission webhook \"", RequestOutcome::Denied),
            ("failed calling webhook \"", RequestOutcome::FailedClosed),
        ] {
            let webhook = (failure.split_once(before)).and_then(|(_, after)| after.split_once('"'));
            if let Some((webhook, _)) = webhook
                && names.is_ours(webhook)
            {
                self.note(outcome, true);
            }
        }
    }

    fn note(&mut self, outcome: RequestOutcome, had: bool) {
        if had {
            self.outcomes.insert(outcome);
            self.was_reviewed = true;
        }
    }

    /// Whether the request had an outcome.
    pub fn had(&self, outcome: RequestOutcome) -> bool {
        self.outcomes.contains(&outcome)
    }

    /// Each outcome that the event shows.
    pub fn outcomes(&self) -> impl Iterator<Item = RequestOutcome> {
        self.outcomes.iter().copied()
    }

    /// Whether there is no information about Transom.
    pub fn is_silent(&self) -> bool {
        !self.was_reviewed
    }
}

/// Adds the names of a list without duplicates: a line of a log can contain hundreds of thousands.
fn add<'e>(names: &mut BTreeSet<&'e str>, list: &'e str) {
    names.extend(list.split(',').map(str::trim).filter(|name| !name.is_empty()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_many_rules_takes_time_in_proportion() {
        let list: Vec<String> = (0..200_000).map(|number| format!("rule-{number}")).collect();
        let list = format!("{0},{0}, rule-0 ,", list.join(","));
        let mut names = BTreeSet::new();
        // Comparing all pairs would take minutes.
        add(&mut names, &list);
        assert_eq!(names.len(), 200_000);
    }
}
