//! The current problems of a task: each is logged once, until its reason changes or it ends.

use std::collections::BTreeMap;

/// What cannot be done now, each with its reason.
#[derive(Debug, Default)]
pub struct Complaints(BTreeMap<String, String>);

impl Complaints {
    /// Records a problem. Returns whether it is news: it did not exist, or had another reason.
    pub fn is_news(&mut self, about: &str, why: &str) -> bool {
        let is_news = self.0.get(about).is_none_or(|before| before != why);
        if is_news {
            self.0.insert(about.to_owned(), why.to_owned());
        }
        is_news
    }

    /// Forgets a problem that has ended.
    pub fn ended(&mut self, about: &str) {
        self.0.remove(about);
    }

    /// Forgets the problems that no longer exist.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|about, _| exists(about));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_news_until_its_reason_is_known_and_again_after_it_ended() {
        let mut complaints = Complaints::default();
        assert!(complaints.is_news("write a", "no"));
        assert!(!complaints.is_news("write a", "no"));
        assert!(complaints.is_news("write b", "no") && complaints.is_news("write a", "still not"));
        complaints.ended("write a");
        assert!(complaints.is_news("write a", "still not") && !complaints.is_news("write b", "no"));
        complaints.retain(|about| about == "write a");
        assert!(complaints.is_news("write b", "no") && !complaints.is_news("write a", "still not"));
    }
}
