//! The look-ups that wait: namespaces in turn, and in each namespace the newest first, because a review may wait for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::key::ImageKey;

/// A look-up that waits or runs.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is looked up.
    pub key: ImageKey,
    /// The registry, as in [`ImageRef::canonical_registry`](crate::model::windows::image::ImageRef::canonical_registry).
    pub registry: Arc<str>,
    /// The namespace that asked first.
    pub namespace: Arc<str>,
    /// It does not start before this time.
    pub due: Instant,
}

/// The look-ups that wait.
#[derive(Debug, Default)]
pub struct JobQueue {
    /// The look-ups of each namespace, in the order of their turns; none is empty.
    lines: VecDeque<VecDeque<Job>>,
}

impl JobQueue {
    /// The number of look-ups.
    pub fn len(&self) -> usize {
        self.lines.iter().map(VecDeque::len).sum()
    }

    /// The number of look-ups of a namespace.
    pub fn len_of(&self, namespace: &str) -> usize {
        let line = self.lines.iter().find(|line| is_of(line, namespace));
        line.map_or(0, VecDeque::len)
    }

    /// Adds a look-up to the front of the line of its namespace.
    pub fn push(&mut self, job: Job) {
        match (self.lines.iter_mut()).find(|line| is_of(line, &job.namespace)) {
            Some(line) => line.push_front(job),
            None => self.lines.push_back(VecDeque::from([job])),
        }
    }

    /// Removes the next look-up that may start. Whoever has none keeps its turn.
    pub fn pop(&mut self, mut may_start: impl FnMut(&Job) -> bool) -> Option<Job> {
        let mut lines = self.lines.iter().enumerate();
        let (turn, at) =
            lines.find_map(|(turn, line)| Some((turn, line.iter().position(&mut may_start)?)))?;
        let mut line = self.lines.remove(turn)?;
        let job = line.remove(at);
        if !line.is_empty() {
            self.lines.push_back(line);
        }
        job
    }

    /// Removes every look-up that is not kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&Job) -> bool) {
        for line in &mut self.lines {
            line.retain(&mut keep);
        }
        self.lines.retain(|line| !line.is_empty());
    }
}

fn is_of(line: &VecDeque<Job>, namespace: &str) -> bool {
    line.front().is_some_and(|job| &*job.namespace == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::windows::image::ImageRef;
    use crate::registry::service::key::Access;

    /// A queue of these images, as in `namespace/image`, in this order.
    fn queue(images: &[&str]) -> JobQueue {
        let mut queue = JobQueue::default();
        for image in images {
            let (namespace, name) = image.split_once('/').unwrap();
            let text = format!("registry.corp/{name}:1");
            queue.push(Job {
                key: ImageKey::of(&ImageRef::parse(&text).unwrap(), Access::Shared),
                registry: "registry.corp".into(),
                namespace: namespace.into(),
                due: Instant::now(),
            });
        }
        queue
    }

    fn image(job: &Job) -> String {
        let image = ImageRef::parse(&job.key.reference).unwrap();
        format!("{}/{}", job.namespace, image.repository)
    }

    fn all(queue: &mut JobQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(|_| true))
            .map(|job| image(&job))
            .collect()
    }

    #[test]
    fn namespaces_take_turns_and_the_newest_is_first_in_its_namespace() {
        let mut queue = queue(&["a/1", "a/2", "a/3", "b/4", "c/5", "b/6"]);
        assert_eq!((queue.len(), queue.len_of("b"), queue.len_of("d")), (6, 2, 0));
        assert_eq!(all(&mut queue), ["a/3", "b/6", "c/5", "a/2", "b/4", "a/1"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn what_may_not_start_is_passed_and_its_namespace_keeps_its_turn() {
        let mut queue = queue(&["a/1", "b/2", "b/3", "c/4"]);
        let open = |job: &Job| !["a/1", "b/3"].contains(&image(job).as_str());
        let mut popped = |open: &dyn Fn(&Job) -> bool| queue.pop(open).map(|job| image(&job));
        assert_eq!(popped(&open).as_deref(), Some("b/2"));
        assert_eq!(popped(&open).as_deref(), Some("c/4"));
        assert_eq!(popped(&open), None);
        assert_eq!(popped(&|_| true).as_deref(), Some("a/1"));
    }

    #[test]
    fn a_namespace_of_which_nothing_is_kept_has_no_turn() {
        let mut queue = queue(&["a/1", "b/2", "b/3"]);
        queue.retain(|job| image(job) == "b/2");
        assert_eq!(all(&mut queue), ["b/2"]);
    }
}
