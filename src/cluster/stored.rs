//! The stored objects that contain pods: a list of each kind, then its changes. Each object is raw JSON, which its reader
//! decodes once, and is dropped after use.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::{SemaphorePermit, oneshot};

use super::errors::ApiError;
use super::large_objects::names_of_large;
use super::list::{LONGEST_PAGE, Listing, POD_CARRIERS, finished_pods_excluded};
use super::object_stream::ObjectText;
use super::watch::watch_events;
use crate::model::objects::workload::Kind;
use crate::model::syntax::json_types::Str;

/// How often a large object is requested before it is reported.
const ATTEMPTS: u32 = 3;
/// The pause between two of these requests.
const PAUSE: Duration = Duration::from_secs(1);

/// Objects of one kind in the whole cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectList {
    pub kind: Kind,
    /// The path of its list.
    pub path: Cow<'static, str>,
}

impl ObjectList {
    /// Every kind that contains pods, including these custom resources: owners before what they own.
    pub fn all(custom: &[(Kind, String)]) -> Vec<ObjectList> {
        let of = |kind, path| ObjectList { kind, path };
        let custom = custom
            .iter()
            .map(|(kind, path)| of(*kind, Cow::Owned(path.clone())));
        let own = POD_CARRIERS
            .iter()
            .map(|(kind, path)| of(*kind, Cow::Borrowed(*path)));
        custom.chain(own).collect()
    }

    /// The list of all NetworkPolicies.
    pub fn network_policies() -> Self {
        ObjectList {
            kind: Kind::NetworkPolicy,
            path: Cow::Borrowed("/apis/networking.k8s.io/v1/networkpolicies"),
        }
    }

    /// Its objects, or those of a namespace, and their changes.
    fn watch(
        &self,
        client: &Client,
        namespace: Option<&str>,
    ) -> impl Stream<Item = Result<Event<StoredObject>, ApiError>> + use<> {
        let (resource, client) = (self.resource(), names_of_large(client));
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let config = Config {
            field_selector: finished_pods_excluded(self.kind).map(str::to_owned),
            ..Config::default().page_size(LONGEST_PAGE)
        };
        watch_events(api, config)
    }

    /// The objects of these namespaces, once. Its reader must not continue after an error.
    fn in_namespaces(
        &self,
        client: &Client,
        namespaces: BTreeSet<String>,
    ) -> BoxStream<'static, Result<StoredObject, ApiError>> {
        let (list, client) = (self.clone(), client.clone());
        let events = stream::iter(namespaces).flat_map(move |namespace| {
            let events = list.watch(&client, Some(&namespace));
            events
                .take_while(|event| ready(!matches!(event, Ok(Event::InitDone))))
                .boxed()
        });
        let objects = events.filter_map(|event| {
            ready(match event {
                Ok(Event::InitApply(object)) => Some(Ok(object)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            })
        });
        objects.boxed()
    }

    /// One of its objects as it is stored now; `None` if there is none with this uid.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub async fn get(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<StoredObject>, ApiError> {
        let listing = Listing::new(&*self.path).in_namespace(namespace);
        let json = match listing.get(client, name).await {
            Ok(json) => json,
            Err(ApiError::NotFound | ApiError::NamespaceNotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let object = StoredObject::of(json).map_err(|error| ApiError::Other(error.to_string()))?;
        // An object with another uid is another one of this name.
        Ok(Some(object).filter(|object| *object.head().uid == *uid))
    }

    /// Reads the object of an event of which only the name is known; `None` if it is gone.
    async fn complete(self, client: Client, event: Event<StoredObject>) -> Option<KindEvent> {
        let (object, is_listed) = match event {
            Event::InitApply(object) => (object, true),
            Event::Apply(object) => (object, false),
            event => return Some((self.kind, Ok(event))),
        };
        let head = object.head();
        if head.name.is_empty() {
            let why = "an object has more than 256 KiB before its name, and was not read";
            return Some((self.kind, Err(ApiError::ObjectTooLarge(why.to_owned()))));
        }
        let mut attempts = 1;
        let read = loop {
            match self.get(&client, &head.namespace, &head.name, &head.uid).await {
                Err(error) if attempts < ATTEMPTS && error.is_transient() => attempts += 1,
                read => break read,
            }
            tokio::time::sleep(PAUSE).await;
        };
        let event = if is_listed { Event::InitApply } else { Event::Apply };
        Some((self.kind, read.transpose()?.map(event)))
    }

    fn resource(&self) -> ApiResource {
        let mut parts = self.path.rsplit('/');
        let (plural, version) = (parts.next(), parts.next());
        let kind = GroupVersionKind::gvk(self.kind.group(), version.unwrap_or_default(), self.kind.as_str());
        ApiResource::from_gvk_with_plural(&kind, plural.unwrap_or_default())
    }
}

/// A stored object: its JSON, and the metadata that kube's watcher and the readers identify it by.
#[derive(Clone, Debug)]
pub struct StoredObject {
    json: Box<RawValue>,
    meta: Box<ObjectMeta>,
    /// Whether it is too large for a page or an event, and must be read.
    is_name_only: bool,
    /// Of a large object.
    _permit: Option<Arc<SemaphorePermit<'static>>>,
}

impl StoredObject {
    /// An object that was read.
    fn of(object: ObjectText) -> Result<Self, serde_json::Error> {
        let (json, permit) = object.into_parts();
        Ok(StoredObject {
            _permit: permit.map(Arc::new),
            is_name_only: false,
            ..StoredObject::from(RawValue::from_string(json)?)
        })
    }

    /// The object as JSON.
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// The metadata that identifies it.
    pub fn head(&self) -> ObjectHeadMeta<'_> {
        fn text(field: Option<&String>) -> Str<'_> {
            field.map_or("", String::as_str).into()
        }
        ObjectHeadMeta {
            uid: text(self.meta.uid.as_ref()),
            namespace: text(self.meta.namespace.as_ref()),
            name: text(self.meta.name.as_ref()),
            resource_version: text(self.meta.resource_version.as_ref()),
        }
    }
}

impl<'de> Deserialize<'de> for StoredObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(StoredObject::from)
    }
}

impl From<Box<RawValue>> for StoredObject {
    fn from(json: Box<RawValue>) -> Self {
        let head = ObjectHead::of(json.get());
        let text = |field: &Str<'_>| Some(field.to_string());
        let meta = Box::new(ObjectMeta {
            uid: text(&head.metadata.uid),
            namespace: text(&head.metadata.namespace),
            name: text(&head.metadata.name),
            resource_version: text(&head.metadata.resource_version),
            ..ObjectMeta::default()
        });
        let is_name_only = head.is_name_only;
        StoredObject {
            json,
            meta,
            is_name_only,
            _permit: None,
        }
    }
}

impl Resource for StoredObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectHead<'h> {
    #[serde(borrow)]
    metadata: ObjectHeadMeta<'h>,
    /// [`super::large_objects::NAME_ONLY`].
    #[serde(rename = "$nameOnly")]
    is_name_only: bool,
}

impl<'h> ObjectHead<'h> {
    fn of(json: &'h str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }
}

/// The metadata that identifies a stored object, read without its spec.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectHeadMeta<'h> {
    #[serde(borrow)]
    pub uid: Str<'h>,
    #[serde(borrow)]
    pub namespace: Str<'h>,
    #[serde(borrow)]
    pub name: Str<'h>,
    #[serde(borrow)]
    pub resource_version: Str<'h>,
}

impl<'h> ObjectHeadMeta<'h> {
    /// The metadata of an object; empty if it does not parse.
    pub fn of(json: &'h str) -> Self {
        ObjectHead::of(json).metadata
    }
}

/// An event of one kind.
pub type KindEvent = (Kind, Result<Event<StoredObject>, ApiError>);

/// Lists the objects of several kinds and streams their changes. One kind is listed at a time, so that one page is in
/// memory, and owners are known before what they own. A large object is read alone.
pub struct StoredObjects {
    client: Client,
    lists: Vec<ObjectList>,
    /// The kinds to list, or to list again.
    waiting: VecDeque<ObjectList>,
    listing: Option<Kind>,
    streams: SelectAll<BoxStream<'static, KindEvent>>,
    /// The stream of a kind ends when its sender is dropped.
    ends: HashMap<Kind, oneshot::Sender<()>>,
    /// The namespaces to list again.
    namespaces: VecDeque<(ObjectList, BTreeSet<String>)>,
    sweep: Option<(Kind, BoxStream<'static, Result<StoredObject, ApiError>>)>,
    /// The event whose large object is being read.
    incomplete: Option<BoxFuture<'static, Option<KindEvent>>>,
}

impl StoredObjects {
    /// The objects of these kinds.
    pub fn new(client: &Client, lists: Vec<ObjectList>) -> Self {
        StoredObjects {
            client: client.clone(),
            waiting: lists.iter().cloned().collect(),
            lists,
            listing: None,
            streams: SelectAll::new(),
            ends: HashMap::new(),
            namespaces: VecDeque::new(),
            sweep: None,
            incomplete: None,
        }
    }

    /// The lists that are followed.
    pub fn lists(&self) -> &[ObjectList] {
        &self.lists
    }

    /// The list of a kind.
    pub fn list(&self, kind: Kind) -> Option<&ObjectList> {
        self.lists.iter().find(|list| list.kind == kind)
    }

    /// Lists a kind again, after those that wait already. Its changes are streamed until then, and after its list.
    pub fn list_again(&mut self, kind: Kind) {
        let list = self.list(kind).cloned();
        self.waiting
            .extend(list.filter(|list| !self.waiting.contains(list)));
    }

    /// Lists the objects of these namespaces again. Changes wait meanwhile: they are older than such a list, or come again
    /// after it.
    pub fn list_namespaces_again(&mut self, kind: Kind, namespaces: BTreeSet<String>) {
        let list = self.list(kind).cloned();
        self.namespaces.extend(list.map(|list| (list, namespaces)));
    }

    /// Whether namespaces are being listed again.
    pub fn lists_namespaces(&self) -> bool {
        self.sweep.is_some() || !self.namespaces.is_empty()
    }

    /// Whether every kind was listed to its end, or has failed.
    pub fn is_listed(&self) -> bool {
        self.listing.is_none() && self.waiting.is_empty()
    }

    /// The next event; the objects of namespaces that are listed again are `InitApply`. Cancel safe.
    pub async fn next(&mut self) -> KindEvent {
        loop {
            if let Some(incomplete) = &mut self.incomplete {
                let complete = incomplete.await;
                self.incomplete = None;
                if let Some(event) = complete {
                    return event;
                }
            }
            let (kind, event) = self.next_short().await;
            match (event, self.list(kind)) {
                (Ok(event), Some(list)) if is_name_only(&event) => {
                    self.incomplete = Some(list.clone().complete(self.client.clone(), event).boxed());
                }
                (event, _) => return (kind, event),
            }
        }
    }

    async fn next_short(&mut self) -> KindEvent {
        if let Some((kind, object)) = self.next_swept().await {
            return (kind, Ok(Event::InitApply(object)));
        }
        if self.listing.is_none()
            && let Some(list) = self.waiting.pop_front()
        {
            self.start(&list);
        }
        let Some((kind, event)) = self.streams.next().await else {
            return std::future::pending().await;
        };
        // A kind that cannot be listed is tried again while others are listed.
        if self.listing == Some(kind) && matches!(event, Ok(Event::InitDone) | Err(_)) {
            self.listing = None;
        }
        (kind, event)
    }

    async fn next_swept(&mut self) -> Option<(Kind, StoredObject)> {
        loop {
            if let Some((kind, objects)) = &mut self.sweep {
                let (kind, next) = (*kind, objects.next().await);
                match next {
                    Some(Ok(object)) => return Some((kind, object)),
                    Some(Err(_)) => self.list_again(kind),
                    None => {}
                }
            }
            let Some((list, namespaces)) = self.namespaces.pop_front() else {
                self.sweep = None;
                return None;
            };
            self.sweep = Some((list.kind, list.in_namespaces(&self.client, namespaces)));
        }
    }

    fn start(&mut self, list: &ObjectList) {
        let kind = list.kind;
        let (end, ended) = oneshot::channel();
        self.ends.insert(kind, end);
        self.listing = Some(kind);
        let events = list.watch(&self.client, None);
        let events = events.map(move |event| (kind, event));
        self.streams.push(events.take_until(ended).boxed());
    }
}

fn is_name_only(event: &Event<StoredObject>) -> bool {
    match event {
        Event::InitApply(object) | Event::Apply(object) => object.is_name_only,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::test_client::{Reply, serving};

    fn pod(name: &str, version: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": version},
               "spec": {"nodeName": "n1"}})
    }

    /// An API server with a Job and two pods on two pages, of which one changes.
    fn server() -> Client {
        serving(|_, uri, _, _| {
            let query = uri.query().unwrap_or_default();
            let page = |items: &[Value], more: &str| {
                let metadata = json!({"resourceVersion": "5", "continue": more});
                Reply::Json(
                    200,
                    json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}),
                )
            };
            match uri.path() {
                "/apis/batch/v1/jobs" if !query.contains("watch") => page(&[pod("job", "1")], ""),
                "/api/v1/pods" if query.contains("watch") && query.contains("resourceVersion=5") => {
                    let event = json!({"type": "MODIFIED", "object": pod("a", "6")});
                    Reply::Text(200, format!("{event}\n"))
                }
                "/api/v1/pods" if query.contains("continue") => page(&[pod("b", "2")], ""),
                "/api/v1/pods" if !query.contains("watch") => page(&[pod("a", "1")], "more"),
                "/api/v1/namespaces/shop/pods" if query.contains("status.phase") => {
                    page(&[pod("a", "1")], "")
                }
                "/api/v1/namespaces/shop/pods/a" => Reply::Json(200, pod("a", "6")),
                path if path.starts_with("/api/v1/namespaces/bank") => Reply::Json(
                    503,
                    json!({"kind": "Status", "code": 503, "message": "not today", "reason": ""}),
                ),
                path if path.starts_with("/api/v1/namespaces/") => Reply::Json(
                    404,
                    json!({"kind": "Status", "code": 404, "message": "not found", "reason": "NotFound"}),
                ),
                _ => Reply::Stream(stream::pending().boxed()),
            }
        })
    }

    fn lists() -> Vec<ObjectList> {
        let mut lists = ObjectList::all(&[]);
        lists.retain(|list| matches!(list.kind, Kind::Job | Kind::Pod));
        lists
    }

    async fn next(objects: &mut StoredObjects) -> String {
        let (kind, event) = objects.next().await;
        let named = |event: &str, object: &StoredObject| {
            let json: Value = serde_json::from_str(object.json()).unwrap();
            assert_eq!(json["spec"]["nodeName"], "n1");
            format!("{kind} {event} {}", object.head().name)
        };
        match event.unwrap() {
            Event::Init => format!("{kind} begins"),
            Event::InitApply(object) => named("listed", &object),
            Event::InitDone => format!("{kind} ends"),
            Event::Apply(object) => named("changed", &object),
            Event::Delete(object) => named("deleted", &object),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_are_listed_one_after_the_other_page_by_page_and_then_their_changes_come() {
        let mut objects = StoredObjects::new(&server(), lists());
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.push(next(&mut objects).await);
        }
        let expected = [
            "Job begins",
            "Job listed job",
            "Job ends",
            "Pod begins",
            "Pod listed a",
            "Pod listed b",
            "Pod ends",
            "Pod changed a",
        ];
        assert_eq!(seen, expected);
        assert!(objects.is_listed());
        objects.list_again(Kind::Job);
        objects.list_again(Kind::Job);
        assert_eq!(next(&mut objects).await, "Job begins");
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_are_listed_again_and_if_that_fails_the_whole_kind() {
        let mut pods = lists();
        pods.retain(|list| list.kind == Kind::Pod);
        let mut objects = StoredObjects::new(&server(), pods);
        while !objects.is_listed() {
            next(&mut objects).await;
        }
        objects.list_namespaces_again(Kind::Pod, ["shop".to_owned()].into());
        assert!(objects.lists_namespaces());
        assert_eq!(next(&mut objects).await, "Pod listed a");
        assert_eq!(next(&mut objects).await, "Pod changed a");
        assert!(!objects.lists_namespaces());
        objects.list_namespaces_again(Kind::Pod, ["bank".to_owned(), "shop".to_owned()].into());
        assert_eq!(next(&mut objects).await, "Pod begins");
    }

    #[tokio::test]
    async fn an_object_is_read_by_name_and_another_one_of_that_name_is_not_it() {
        let (client, pods) = (server(), lists().remove(1));
        let get = async |name: &str, uid: &str| {
            let found = pods.get(&client, "shop", name, uid).await.unwrap();
            found.map(|object| object.head().resource_version.to_string())
        };
        assert_eq!(get("a", "uid-a").await.as_deref(), Some("6"));
        assert_eq!(get("a", "other").await, None);
        assert_eq!(get("gone", "uid-gone").await, None);
    }

    #[tokio::test]
    async fn a_large_object_is_read_alone_and_one_that_is_gone_is_skipped() {
        let large = |name: &str| {
            let mut pod = pod(name, "1");
            pod["spec"]["text"] = "<".repeat(300 << 10).into();
            pod
        };
        let client = serving(move |_, uri, _, _| match uri.path() {
            "/api/v1/namespaces/shop/pods/large" => Reply::Json(200, large("large")),
            path if path.starts_with("/api/v1/namespaces/") => Reply::Json(
                404,
                json!({"kind": "Status", "code": 404, "message": "not found", "reason": "NotFound"}),
            ),
            _ if uri.query().unwrap_or_default().contains("watch") => {
                Reply::Stream(stream::pending().boxed())
            }
            _ => {
                let items = [large("large"), large("gone"), pod("small", "1")];
                let metadata = json!({"resourceVersion": "5"});
                Reply::Json(
                    200,
                    json!({"kind": "PodList", "metadata": metadata, "items": items}),
                )
            }
        });
        let mut lists = ObjectList::all(&[]);
        lists.retain(|list| list.kind == Kind::Pod);
        let mut objects = StoredObjects::new(&client, lists);
        for expected in ["Pod begins", "Pod listed large", "Pod listed small", "Pod ends"] {
            assert_eq!(next(&mut objects).await, expected);
        }
    }
}
