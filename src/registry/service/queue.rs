//! The look-ups that wait for one registry: namespaces in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::key::ImageKey;

/// A look-up that waits or runs.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is looked up.
    pub key: ImageKey,
    /// The registry, as in [`registry_of`](super::key::registry_of).
    pub registry: Arc<str>,
    /// The namespace that asked first.
    pub namespace: Arc<str>,
    /// Since when it waits or runs.
    pub since: Instant,
}

/// The look-ups that wait for a registry.
#[derive(Debug, Default)]
pub struct JobQueue {
    /// The namespaces with jobs, in turn; each once.
    turns: VecDeque<Arc<str>>,
    jobs: HashMap<Arc<str>, VecDeque<Job>>,
}

impl JobQueue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds a job to the line of its namespace, at the front if it `is_urgent`.
    pub fn push(&mut self, job: Job, is_urgent: bool) {
        let jobs = self.jobs.entry(Arc::clone(&job.namespace)).or_default();
        if jobs.is_empty() {
            self.turns.push_back(Arc::clone(&job.namespace));
        }
        if is_urgent {
            jobs.push_front(job);
        } else {
            jobs.push_back(job);
        }
    }

    /// Removes the next job.
    pub fn pop(&mut self) -> Option<Job> {
        let namespace = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&namespace)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        job
    }

    /// Moves a job to the front of the line of its namespace.
    pub fn advance(&mut self, key: &ImageKey, namespace: &str) {
        let Some(jobs) = self.jobs.get_mut(namespace) else {
            return;
        };
        let at = jobs.iter().position(|job| job.key == *key);
        if let Some(job) = at.and_then(|at| jobs.remove(at)) {
            jobs.push_front(job);
        }
    }

    /// Removes everything.
    pub fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        std::mem::take(self).jobs.into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::image::ImageRef;
    use crate::registry::service::key::Access;

    fn job(namespace: &str, name: &str) -> Job {
        let text = format!("registry.corp/{name}:1");
        let image = ImageRef::parse(&text).unwrap();
        Job {
            key: ImageKey::of(&image, Access::Shared),
            registry: "registry.corp".into(),
            namespace: namespace.into(),
            since: Instant::now(),
        }
    }

    fn all(queue: &mut JobQueue) -> Vec<String> {
        let jobs = std::iter::from_fn(|| queue.pop());
        let name = |job: Job| {
            let image = ImageRef::parse(&job.key.reference).unwrap();
            format!("{} {}", job.namespace, image.repository)
        };
        jobs.map(name).collect()
    }

    #[test]
    fn namespaces_take_turns_and_what_is_urgent_is_first_in_its_namespace() {
        let mut queue = JobQueue::default();
        for name in ["a1", "a2", "a3"] {
            queue.push(job("a", name), false);
        }
        queue.push(job("b", "b1"), false);
        queue.push(job("a", "urgent"), true);
        let expected = ["a urgent", "b b1", "a a1", "a a2", "a a3"];
        assert_eq!(all(&mut queue), expected);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_that_waits_is_moved_to_the_front_of_its_namespace() {
        let mut queue = JobQueue::default();
        for name in ["a1", "a2", "a3"] {
            queue.push(job("a", name), false);
        }
        queue.push(job("b", "b1"), false);
        queue.advance(&job("a", "a3").key, "a");
        queue.advance(&job("a", "unknown").key, "a");
        assert_eq!(all(&mut queue), ["a a3", "b b1", "a a1", "a a2"]);
    }
}
