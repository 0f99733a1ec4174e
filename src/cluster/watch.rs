//! Opens watches with back-off. Every watch of the crate is opened here.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::errors::ApiError;
use super::rate_limit::WatchBackoff;

/// Lists objects, then streams their changes, forever. After an error it waits before it tries again.
pub fn watch_events<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>, ApiError>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, config).boxed();
    let start = (events, WatchBackoff::default(), Duration::ZERO);
    stream::unfold(start, |(mut events, mut backoff, delay)| async move {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let event = events.next().await?.map_err(ApiError::from);
        let mut delay = Duration::ZERO;
        match &event {
            Ok(Event::InitDone) => backoff.listed(),
            Ok(_) => {}
            Err(error) => delay = backoff.after(error),
        }
        Some((event, (events, backoff, delay)))
    })
}
