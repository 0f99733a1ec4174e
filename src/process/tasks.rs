//! Named tasks that must live as long as the process: the end of any one is reported, whether it returned or
//! panicked.

use std::collections::HashMap;

use tokio::runtime::Handle;
use tokio::task::{Id, JoinSet};

/// A task that should have lived as long as the process has ended.
#[derive(Debug, thiserror::Error)]
#[error("the task {task:?} ended unexpectedly{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
pub struct TaskEnded {
    /// The name of the task.
    pub task: &'static str,
    /// Its error, or that it panicked; `None` if it returned without one.
    pub why: Option<String>,
}

/// Running tasks with their names; dropping this aborts them.
#[derive(Default, Debug)]
pub struct Tasks {
    running: JoinSet<Option<String>>,
    names: HashMap<Id, &'static str>,
    /// The runtime that they run on, if it differs from that of the caller.
    on: Option<Handle>,
}

impl Tasks {
    /// No tasks yet; they will run on this runtime.
    pub fn on(threads: Handle) -> Self {
        Tasks {
            on: Some(threads),
            ..Tasks::default()
        }
    }

    /// Starts a task that returns nothing.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.add(name, async {
            task.await;
            None
        });
    }

    /// Starts a task that returns the reason why it ended.
    pub fn spawn_reporting<W: ToString>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = W> + Send + 'static,
    ) {
        self.add(name, async { Some(task.await.to_string()) });
    }

    fn add(&mut self, name: &'static str, task: impl Future<Output = Option<String>> + Send + 'static) {
        let started = match &self.on {
            Some(threads) => self.running.spawn_on(task, threads),
            None => self.running.spawn(task),
        };
        self.names.insert(started.id(), name);
    }

    /// Waits for any task to end, which none should; waits forever without tasks.
    pub async fn ended(&mut self) -> TaskEnded {
        let Some(ended) = self.running.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let (id, why) = match ended {
            Ok((id, why)) => (id, why),
            Err(error) if error.is_panic() => (error.id(), Some("it panicked".to_owned())),
            Err(error) => (error.id(), Some("it was cancelled".to_owned())),
        };
        TaskEnded {
            task: self.names.get(&id).copied().unwrap_or("unknown"),
            why,
        }
    }

    /// Aborts all tasks, and waits until they have ended.
    pub async fn shutdown(mut self) {
        self.running.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn tasks_run_on_the_threads_that_they_are_given() {
        let runtime = |name: &str| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).build().unwrap()
        };
        let (reviews, background) = (runtime("reviews"), runtime("background"));
        let ended = reviews.block_on(async {
            let mut tasks = Tasks::on(background.handle().clone());
            let name = || std::thread::current().name().unwrap_or_default().to_owned();
            tasks.spawn_reporting("a", async move { name() });
            tasks.ended().await
        });
        assert_eq!(ended.why.as_deref(), Some("background"));
    }

    #[tokio::test]
    async fn the_first_task_that_ends_is_named_with_what_it_reported() {
        let end_of = |name, start: fn(&mut Tasks)| async move {
            let mut tasks = Tasks::default();
            tasks.spawn("goes on", pending());
            start(&mut tasks);
            let ended = tasks.ended().await;
            assert_eq!(ended.task, name);
            ended.to_string()
        };
        assert_eq!(
            end_of("silent", |tasks| tasks.spawn("silent", async {})).await,
            "the task \"silent\" ended unexpectedly"
        );
        assert_eq!(
            end_of("talks", |tasks| tasks
                .spawn_reporting("talks", async { "enough" }))
            .await,
            "the task \"talks\" ended unexpectedly: enough"
        );
        assert_eq!(
            end_of("panics", |tasks| tasks.spawn("panics", async { panic!("oh") })).await,
            "the task \"panics\" ended unexpectedly: it panicked"
        );
    }
}
