//! The look-ups that wait for one registry: those of reviews first, and namespaces in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::key::ImageKey;

/// How urgent a look-up is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// A review asked: pods may be created any moment.
    Review,
    /// A stored workload, or a refresh.
    Background,
}

/// A look-up that waits or runs.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is looked up.
    pub key: ImageKey,
    /// The registry, as in [`registry_of`](super::key::registry_of).
    pub registry: Arc<str>,
    /// The namespace that asked first.
    pub namespace: Arc<str>,
    /// How urgent it is.
    pub priority: Priority,
    /// When it was requested.
    pub created: Instant,
}

/// The look-ups that wait for a registry.
#[derive(Debug, Default)]
pub struct JobQueue {
    review: FairQueue,
    background: FairQueue,
}

impl JobQueue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.review.turns.is_empty() && self.background.turns.is_empty()
    }

    /// Appends a job.
    pub fn push(&mut self, job: Job) {
        self.of(job.priority).push(job);
    }

    /// Whether a job of a namespace that `may` run is waiting.
    pub fn has(&self, may: impl Fn(&str) -> bool) -> bool {
        let mut turns = self.review.turns.iter().chain(&self.background.turns);
        turns.any(|namespace| may(namespace))
    }

    /// The next job of a namespace that `may` run.
    pub fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<Job> {
        self.review.pop(&may).or_else(|| self.background.pop(&may))
    }

    /// Moves a job of the background before the others of the background: a review asks for the same.
    pub fn promote(&mut self, key: &ImageKey, namespace: &Arc<str>) {
        if let Some(job) = self.background.take(key, namespace) {
            self.review.push(Job {
                priority: Priority::Review,
                ..job
            });
        }
    }

    /// Removes everything.
    pub fn drain(&mut self) -> Vec<Job> {
        let Self { review, background } = std::mem::take(self);
        let jobs = review.jobs.into_values().chain(background.jobs.into_values());
        jobs.flatten().collect()
    }

    fn of(&mut self, priority: Priority) -> &mut FairQueue {
        match priority {
            Priority::Review => &mut self.review,
            Priority::Background => &mut self.background,
        }
    }
}

#[derive(Debug, Default)]
struct FairQueue {
    /// The namespaces with jobs, in turn; each once.
    turns: VecDeque<Arc<str>>,
    jobs: HashMap<Arc<str>, VecDeque<Job>>,
}

impl FairQueue {
    fn push(&mut self, job: Job) {
        let jobs = self.jobs.entry(Arc::clone(&job.namespace)).or_default();
        if jobs.is_empty() {
            self.turns.push_back(Arc::clone(&job.namespace));
        }
        jobs.push_back(job);
    }

    fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<Job> {
        let at = self.turns.iter().position(|namespace| may(namespace))?;
        let namespace = self.turns.remove(at)?;
        let jobs = self.jobs.get_mut(&namespace)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        job
    }

    fn take(&mut self, key: &ImageKey, namespace: &Arc<str>) -> Option<Job> {
        let jobs = self.jobs.get_mut(namespace)?;
        let at = jobs.iter().position(|job| job.key == *key)?;
        let job = jobs.remove(at);
        if jobs.is_empty() {
            self.jobs.remove(namespace);
            self.turns.retain(|other| other != namespace);
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image::ImageRef;
    use crate::registry::service::key::Access;

    fn job(namespace: &str, name: &str, priority: Priority) -> Job {
        let text = format!("registry.corp/{name}:1");
        let image = ImageRef::parse(&text).unwrap();
        Job {
            key: ImageKey::of(&image, Access::Shared),
            registry: "registry.corp".into(),
            namespace: namespace.into(),
            priority,
            created: Instant::now(),
        }
    }

    fn all(queue: &mut JobQueue, may: impl Fn(&str) -> bool + Copy) -> Vec<String> {
        let jobs = std::iter::from_fn(|| queue.pop(may));
        let name = |job: Job| {
            let image = ImageRef::parse(&job.key.reference).unwrap();
            format!("{} {}", job.namespace, image.repository)
        };
        jobs.map(name).collect()
    }

    #[test]
    fn reviews_come_first_and_namespaces_take_turns() {
        let mut queue = JobQueue::default();
        queue.push(job("c", "c1", Priority::Background));
        for name in ["a1", "a2", "a3"] {
            queue.push(job("a", name, Priority::Review));
        }
        queue.push(job("b", "b1", Priority::Review));
        assert_eq!(
            all(&mut queue, |_| true),
            ["a a1", "b b1", "a a2", "a a3", "c c1"]
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn a_namespace_that_must_wait_does_not_delay_others() {
        let mut queue = JobQueue::default();
        queue.push(job("a", "a1", Priority::Review));
        queue.push(job("b", "b1", Priority::Review));
        assert!(queue.has(|namespace| namespace == "b"));
        assert_eq!(all(&mut queue, |namespace| namespace != "a"), ["b b1"]);
        assert!(!queue.is_empty() && !queue.has(|namespace| namespace == "b"));
        assert_eq!(all(&mut queue, |_| true), ["a a1"]);
    }

    #[test]
    fn a_review_promotes_what_waits_in_the_background() {
        let mut queue = JobQueue::default();
        let late = job("b", "late", Priority::Background);
        queue.push(job("a", "early", Priority::Background));
        queue.push(late.clone());
        queue.promote(&late.key, &late.namespace);
        queue.promote(&late.key, &late.namespace);
        assert_eq!(all(&mut queue, |_| true), ["b late", "a early"]);
        assert!(queue.is_empty());
    }
}
