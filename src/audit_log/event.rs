//! One audit event, in the formats of the API server and of log stores that wrap it.

use std::borrow::Cow;

use jiff::Timestamp;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::syntax::json_types::{Map, Str};

/// The maximum nesting of wrappers.
const DEEPEST: usize = 4;

/// An event, or the wrapper that a log store adds. No member name has a different meaning in the two.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditEvent<'a> {
    /// `audit.k8s.io/v1.Event`.
    #[serde(borrow, rename = "auditID", alias = "AuditId")]
    audit_id: Str<'a>,
    #[serde(alias = "Stage")]
    stage: Str<'a>,
    #[serde(rename = "requestURI", alias = "RequestUri")]
    request_uri: Str<'a>,
    #[serde(alias = "User")]
    user: Option<&'a RawValue>,
    /// The impersonated user, which is the only one that webhooks receive.
    impersonated_user: Option<&'a RawValue>,
    #[serde(alias = "ObjectRef")]
    object_ref: Option<&'a RawValue>,
    #[serde(alias = "ResponseStatus")]
    response_status: Option<&'a RawValue>,
    #[serde(alias = "Annotations")]
    annotations: Option<&'a RawValue>,
    #[serde(alias = "RequestReceivedTime")]
    request_received_timestamp: Str<'a>,
    #[serde(alias = "StageReceivedTime")]
    stage_timestamp: Str<'a>,
    /// A list of events or of wrappers.
    items: Option<&'a RawValue>,
    events: Option<&'a RawValue>,
    log_events: Option<&'a RawValue>,
    records: Option<&'a RawValue>,
    value: Option<&'a RawValue>,
    /// An event as text, or as an object.
    properties: Option<&'a RawValue>,
    log: Option<&'a RawValue>,
    #[serde(rename = "log_s")]
    log_text: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
    #[serde(rename = "@message")]
    at_message: Option<&'a RawValue>,
    line: Option<&'a RawValue>,
    #[serde(rename = "_source")]
    source: Option<&'a RawValue>,
    #[serde(rename = "_raw")]
    raw: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    /// An entry of Google's Cloud Logging.
    proto_payload: Option<&'a RawValue>,
    labels: Option<&'a RawValue>,
    timestamp: Option<&'a RawValue>,
    resource: Option<&'a RawValue>,
    /// The cluster, in the formats of Azure and Amazon.
    #[serde(alias = "_ResourceId")]
    resource_id: Option<&'a RawValue>,
    log_group: Option<&'a RawValue>,

    #[serde(skip)]
    parts: AuditEventParts<'a>,
}

/// The members that are objects, parsed.
#[derive(Default, Debug)]
struct AuditEventParts<'a> {
    user: AuditUser<'a>,
    object: ObjectRef<'a>,
    status: ResponseStatus<'a>,
    annotations: Map<'a>,
    cluster: String,
    time: Option<Timestamp>,
    ended: String,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct AuditUser<'a> {
    #[serde(borrow)]
    username: Str<'a>,
}

/// The object of a request.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef<'a> {
    /// The plural, as in `deployments`.
    #[serde(borrow)]
    pub resource: Str<'a>,
    /// As in `ephemeralcontainers`.
    pub subresource: Str<'a>,
    pub namespace: Str<'a>,
    /// Its name; empty if the API server had to generate one.
    pub name: Str<'a>,
    /// The API group; empty for the core group.
    pub api_group: Str<'a>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct ResponseStatus<'a> {
    code: i64,
    #[serde(borrow)]
    message: Str<'a>,
}

/// `google.cloud.audit.AuditLog`.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
struct ProtoPayload<'a> {
    #[serde(borrow)]
    authentication_info: AuthenticationInfo<'a>,
    method_name: Str<'a>,
    resource_name: Str<'a>,
    status: ResponseStatus<'a>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
struct AuthenticationInfo<'a> {
    #[serde(borrow)]
    principal_email: Str<'a>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct Resource<'a> {
    #[serde(borrow)]
    labels: Map<'a>,
}

/// The text is not an audit event and contains none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoEvent;

/// Whether a text may be an audit event, without parsing it.
pub fn looks_like_one(text: &[u8]) -> bool {
    ["auditID", "AuditId", "google.cloud.audit.AuditLog"]
        .iter()
        .any(|word| memmem::find(text, word.as_bytes()).is_some())
}

/// Calls `give` with each event of a text: the text itself, several consecutive ones, and those in wrappers.
///
/// # Errors
/// If the text, or a part of it, is not JSON or contains no event.
pub fn each(text: &str, give: &mut dyn FnMut(&AuditEvent<'_>)) -> Result<(), NoEvent> {
    each_below(text, "", DEEPEST, give)
}

fn each_below(
    text: &str,
    cluster: &str,
    depth: usize,
    give: &mut dyn FnMut(&AuditEvent<'_>),
) -> Result<(), NoEvent> {
    let mut result = Ok(());
    if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| NoEvent)?;
        for item in items {
            result = below(item, cluster, depth, give).and(result);
        }
        return result;
    }
    for event in serde_json::Deserializer::from_str(text).into_iter::<AuditEvent<'_>>() {
        let event = event.map_err(|_| NoEvent)?;
        result = event.unwrap_and_give(cluster, depth, give).and(result);
    }
    result
}

/// The events of a member, which is an object, a list, or one of these as a string.
fn below(
    member: &RawValue,
    cluster: &str,
    depth: usize,
    give: &mut dyn FnMut(&AuditEvent<'_>),
) -> Result<(), NoEvent> {
    let depth = depth.checked_sub(1).ok_or(NoEvent)?;
    let text = member.get();
    if !text.starts_with('"') {
        return each_below(text, cluster, depth, give);
    }
    let text: Cow<'_, str> = serde_json::from_str::<Str<'_>>(text).map_err(|_| NoEvent)?.0;
    each_below(text.trim(), cluster, depth, give)
}

/// Parses a member that is an object, or a string that contains one; the default if it is neither.
fn part<'a, T: Deserialize<'a> + Default>(member: Option<&'a RawValue>) -> T {
    member
        .and_then(|member| serde_json::from_str(member.get()).ok())
        .unwrap_or_default()
}

/// A member that is a string.
fn text<'a>(member: Option<&'a RawValue>) -> Cow<'a, str> {
    part::<Str<'a>>(member).0
}

impl<'a> AuditEvent<'a> {
    fn unwrap_and_give(
        mut self,
        cluster: &str,
        depth: usize,
        give: &mut dyn FnMut(&AuditEvent<'_>),
    ) -> Result<(), NoEvent> {
        let own = self.cluster_of_wrapper();
        let cluster = if own.is_empty() { cluster } else { &own };
        if self.proto_payload.is_some() {
            self.read_google();
        } else if !self.audit_id.is_empty() {
            self.read();
        } else {
            return self.each_wrapped(cluster, depth, give);
        }
        cluster.clone_into(&mut self.parts.cluster);
        give(&self);
        Ok(())
    }

    fn each_wrapped(
        &self,
        cluster: &str,
        depth: usize,
        give: &mut dyn FnMut(&AuditEvent<'_>),
    ) -> Result<(), NoEvent> {
        let wrapped = [
            self.items,
            self.events,
            self.log_events,
            self.records,
            self.value,
            self.properties,
            self.log,
            self.log_text,
            self.at_message,
            self.message,
            self.line,
            self.source,
            self.raw,
            self.result,
        ];
        let mut found = Err(NoEvent);
        for member in wrapped.into_iter().flatten() {
            let wraps = matches!(member.get().as_bytes().first(), Some(b'"' | b'{' | b'['));
            if wraps && below(member, cluster, depth, give).is_ok() {
                found = Ok(());
            }
        }
        found
    }

    fn read(&mut self) {
        self.parts.user = part(self.impersonated_user.or(self.user));
        self.parts.object = part(self.object_ref);
        self.parts.status = part(self.response_status);
        self.parts.annotations = part(self.annotations);
        self.parts.time = (self.request_received_timestamp.parse())
            .or_else(|_| self.stage_timestamp.parse())
            .ok();
        self.parts.ended = self.stage_timestamp.to_string();
    }

    fn read_google(&mut self) {
        let payload: ProtoPayload<'a> = part(self.proto_payload);
        self.parts.user.username = payload.authentication_info.principal_email;
        self.parts.object = google_object(&payload.method_name, &payload.resource_name);
        // The code is a gRPC code: 0 for success, and otherwise not an HTTP status.
        self.parts.status = payload.status;
        if self.parts.status.code > 0 {
            self.parts.status.code += 400;
        }
        self.parts.annotations = part(self.labels);
        self.parts.time = text(self.timestamp).parse().ok();
        self.parts.ended = format!("{} {}", payload.method_name, payload.resource_name);
    }

    /// The name of the cluster, if a log store gives it.
    fn cluster_of_wrapper(&self) -> String {
        let azure = text(self.resource_id);
        let mut parts = azure
            .split('/')
            .skip_while(|part| !part.eq_ignore_ascii_case("managedClusters"));
        if let Some(name) = parts.nth(1) {
            return name.to_lowercase();
        }
        let amazon = text(self.log_group);
        if let Some(name) = amazon.strip_prefix("/aws/eks/") {
            return name.strip_suffix("/cluster").unwrap_or(name).to_owned();
        }
        let google: Resource<'_> = part(self.resource);
        google
            .labels
            .get("cluster_name")
            .map_or(String::new(), ToString::to_string)
    }

    /// Its audit ID. A client can choose it.
    pub fn id(&self) -> &str {
        &self.audit_id
    }

    /// When the request was received.
    pub fn time(&self) -> Option<Timestamp> {
        self.parts.time
    }

    /// When it was answered, as text: it distinguishes two events with the same ID.
    pub fn ended(&self) -> &str {
        &self.parts.ended
    }

    /// Whether the event is the last one of its request; the answer is known then.
    pub fn is_final(&self) -> bool {
        self.proto_payload.is_some() || matches!(&*self.stage, "ResponseComplete" | "Panic")
    }

    /// The requested URI; empty in Google's logs.
    pub fn request_uri(&self) -> &str {
        &self.request_uri
    }

    /// Whether the request was a dry run. Google's logs do not contain this.
    pub fn is_dry_run(&self) -> bool {
        let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|pair| pair.starts_with("dryRun="))
    }

    /// The user who sent the request.
    pub fn user(&self) -> &str {
        &self.parts.user.username
    }

    /// The object of the request.
    pub fn object(&self) -> &ObjectRef<'a> {
        &self.parts.object
    }

    /// The namespace of the object.
    pub fn namespace(&self) -> &str {
        &self.parts.object.namespace
    }

    /// The cluster, if a log store gives it; otherwise empty.
    pub fn cluster(&self) -> &str {
        &self.parts.cluster
    }

    /// Whether the request failed.
    pub fn has_failed(&self) -> bool {
        self.parts.status.code >= 400
    }

    /// The error message that the client received.
    pub fn failure(&self) -> &str {
        if self.has_failed() {
            &self.parts.status.message
        } else {
            ""
        }
    }

    /// The annotations of every webhook and of the API server.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts
            .annotations
            .iter()
            .map(|(key, value)| (&**key, &**value))
    }
}

/// Parses `io.k8s.core.v1.pods.create` and `core/v1/namespaces/shop/pods/web`.
fn google_object<'a>(method: &str, resource: &str) -> ObjectRef<'a> {
    let mut parts = resource.split('/');
    let group = parts.next().unwrap_or_default();
    let mut rest = parts.skip_while(|part| *part != "namespaces").skip(1);
    let namespace = rest.next().unwrap_or_default();
    let named = rest.next();
    let of_method = method.rsplit('.').nth(1).unwrap_or_default();
    let owned = |text: &str| Str::from(text.to_owned());
    ObjectRef {
        resource: owned(named.unwrap_or(of_method)),
        namespace: owned(namespace),
        name: owned(rest.next().unwrap_or_default()),
        subresource: owned(rest.next().unwrap_or_default()),
        api_group: owned(if group == "core" { "" } else { group }),
    }
}
