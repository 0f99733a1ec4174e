//! Which registries do not answer, and to whom. An author chooses the repository, and who serves it may not answer on purpose: so
//! a failure closes the repository for its namespace, and a registry is down only if several namespaces see it fail. Pure values
//! that are given the time; every collection is bounded.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::breaker::Breaker;
use super::queue::Job;

/// Repositories whose failures are remembered, in all.
const REPOSITORIES: usize = 2_048;
/// Namespaces that are remembered for one registry.
const NAMESPACES: usize = 64;
/// Failed look-ups of one registry of which one is tried next.
const PROBES: usize = 8;
/// How long a namespace is one of those that use a registry.
const USED: Duration = Duration::from_secs(24 * 60 * 60);

/// A repository, as one namespace uses it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UsedRepository {
    namespace: Arc<str>,
    repository: Arc<str>,
}

impl UsedRepository {
    /// The repository of a look-up.
    pub fn of(job: &Job) -> Self {
        UsedRepository {
            namespace: Arc::clone(&job.namespace),
            repository: job.key.repository(),
        }
    }

    /// All repositories of its registry.
    fn all_of(job: &Job) -> Self {
        UsedRepository {
            namespace: Arc::clone(&job.namespace),
            repository: Arc::clone(&job.registry),
        }
    }
}

/// The repositories that have failed last, and the registries that have asked a namespace for fewer requests.
#[derive(Debug, Default)]
pub struct FailedRepositories(HashMap<UsedRepository, Breaker>);

impl FailedRepositories {
    /// Whether a look-up is refused.
    pub fn refuse(&self, job: &Job, now: Instant) -> bool {
        [UsedRepository::of(job), UsedRepository::all_of(job)]
            .iter()
            .any(|used| {
                let breaker = self.0.get(used).filter(|breaker| breaker.is_open());
                breaker.is_some_and(|breaker| breaker.retry().is_some_and(|retry| retry > now))
            })
    }

    /// A look-up failed. Returns whether new ones of its repository are refused: it failed repeatedly, or others of the registry
    /// did, and none answered the namespace since.
    pub fn failed(&mut self, job: &Job, retry_after: Option<Duration>, now: Instant) -> bool {
        let is_first = !self.0.contains_key(&UsedRepository::of(job));
        let all = self.breaker(UsedRepository::all_of(job));
        if is_first || retry_after.is_some() {
            all.failed(String::new(), retry_after, now);
        }
        let are_refused = all.is_open();
        let breaker = self.breaker(UsedRepository::of(job));
        breaker.failed(String::new(), retry_after, now);
        breaker.is_open() || are_refused
    }

    /// A look-up was answered.
    pub fn answered(&mut self, job: &Job) {
        self.0.remove(&UsedRepository::of(job));
        self.0.remove(&UsedRepository::all_of(job));
    }

    /// Of too many repositories, the one that is tried first is forgotten.
    fn breaker(&mut self, used: UsedRepository) -> &mut Breaker {
        if self.0.len() >= REPOSITORIES && !self.0.contains_key(&used) {
            let first = self.0.iter().min_by_key(|(_, breaker)| breaker.retry());
            if let Some(first) = first.map(|(used, _)| used.clone()) {
                self.0.remove(&first);
            }
        }
        self.0.entry(used).or_default()
    }

    /// How many it remembers.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Which namespaces use a registry, and which of them get no answer, or late ones.
#[derive(Debug, Default)]
pub struct RegistryUse {
    /// The namespaces that have asked last, with the time.
    users: VecDeque<(Arc<str>, Instant)>,
    /// The namespaces with a repository that is refused, since the registry answered last.
    failing: BTreeSet<Arc<str>>,
    /// The namespaces whose last look-up was not answered in time.
    slow: BTreeSet<Arc<str>>,
    /// Whether the last look-up of all was answered in time.
    is_prompt: bool,
    /// Look-ups that have failed since it answered last, each of another repository; the next one to try is first.
    probes: VecDeque<Job>,
}

impl RegistryUse {
    /// Records that a namespace uses the registry now.
    pub fn used_by(&mut self, namespace: &Arc<str>, now: Instant) {
        self.users
            .retain(|(user, at)| user != namespace && *at + USED > now);
        self.users.truncate(NAMESPACES - 1);
        self.users.push_front((Arc::clone(namespace), now));
    }

    /// How many namespaces must agree about a registry: two, or the only one that uses it.
    fn needed(&self) -> usize {
        self.users.len().clamp(1, 2)
    }

    /// Whether it does not answer.
    pub fn is_down(&self) -> bool {
        self.failing.len() >= self.needed()
    }

    /// Whether it answers late.
    pub fn is_slow(&self) -> bool {
        !self.is_prompt && self.slow.len() >= self.needed()
    }

    /// Whether it answers a namespace late.
    pub fn is_slow_for(&self, namespace: &str) -> bool {
        self.slow.contains(namespace)
    }

    /// The namespaces whose look-ups have shown that it fails.
    pub fn failing(&self) -> &BTreeSet<Arc<str>> {
        &self.failing
    }

    /// A look-up was answered. Returns whether the registry was down.
    pub fn answered(&mut self, namespace: &Arc<str>, is_prompt: bool) -> bool {
        let was_down = self.is_down();
        self.failing.clear();
        self.probes.clear();
        self.is_prompt = is_prompt;
        if is_prompt {
            self.slow.remove(namespace);
        } else {
            insert(&mut self.slow, namespace);
        }
        was_down
    }

    /// A look-up failed. `is_refused`: new ones of its repository are refused.
    pub fn failed(&mut self, job: &Job, is_refused: bool) {
        self.is_prompt = false;
        insert(&mut self.slow, &job.namespace);
        if is_refused {
            insert(&mut self.failing, &job.namespace);
        }
        let repository = UsedRepository::of(job);
        self.probes
            .retain(|probe| UsedRepository::of(probe) != repository);
        self.probes.truncate(PROBES - 1);
        self.probes.push_back(job.clone());
    }

    /// The look-up that finds out whether it answers again: of another namespace than the last one, if there is one.
    pub fn probe(&self, last: &Job) -> Job {
        let other = self.probes.iter().find(|probe| probe.namespace != last.namespace);
        other.or_else(|| self.probes.front()).unwrap_or(last).clone()
    }
}

fn insert(namespaces: &mut BTreeSet<Arc<str>>, namespace: &Arc<str>) {
    // Two are enough for every decision.
    if namespaces.len() < NAMESPACES {
        namespaces.insert(Arc::clone(namespace));
    }
}
