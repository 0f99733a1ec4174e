//! Reads the objects of an answer one by one while it arrives. Tenants decide how large their objects are, and the API server
//! writes a `<` as six bytes; so the memory for them is bounded here, for all readers of the process together.

use std::ops::Deref;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::Request;
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::json_items::{JsonItem, JsonItems, Sequence};
use crate::model::syntax::json::at;

/// The most bytes of an object that is read. The API server accepts 3 MiB, of which each byte may be written as six; etcd accepts
/// half of that unless it is configured otherwise.
pub const LARGEST: usize = 20 << 20;
/// Objects of more bytes are read one after the other in the whole process.
const SMALL: usize = 1 << 20;
/// How long the API server may take to begin an answer, and to continue with an object that it has begun.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of an error.
const MOST_OF_ERROR: usize = 64 << 10;

/// Whoever reads a large object has it.
static LARGE_OBJECT: Semaphore = Semaphore::const_new(1);

/// An object as JSON. While a large one is kept, no other large one is read.
#[derive(Debug)]
pub struct ObjectText {
    text: String,
    permit: Option<SemaphorePermit<'static>>,
}

impl ObjectText {
    /// The text, and what must be kept as long as the text.
    pub fn into_parts(self) -> (String, Option<SemaphorePermit<'static>>) {
        (self.text, self.permit)
    }
}

impl Deref for ObjectText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// What an answer contains.
#[derive(Debug)]
pub enum StreamedObject {
    Whole(ObjectText),
    /// The beginning of an object of more bytes than the limit.
    TooLarge(String),
}

/// The objects of one answer.
#[derive(Debug)]
pub struct ObjectStream {
    body: Body,
    items: JsonItems,
    sequence: Sequence,
    permit: Option<SemaphorePermit<'static>>,
    bytes: usize,
}

impl ObjectStream {
    /// Sends a request.
    ///
    /// # Errors
    /// The API server refuses, or cannot be reached.
    pub async fn open(
        client: &Client,
        request: Request<Vec<u8>>,
        sequence: Sequence,
    ) -> Result<Self, kube::Error> {
        let response = client.send(request.map(Body::from)).await?;
        let code = response.status().as_u16();
        let body = response.into_body();
        if code < 400 {
            return Ok(ObjectStream::of(body, sequence, LARGEST));
        }
        let text = Limited::new(body, MOST_OF_ERROR).collect().await;
        let text = text.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let status: Option<Status> = serde_json::from_slice(&text).ok();
        let unknown = || Status::failure(&String::from_utf8_lossy(&text), "").with_code(code);
        Err(kube::Error::Api(Box::new(status.unwrap_or_else(unknown))))
    }

    /// The objects of the body of a successful answer. `limit`: the most bytes of an object that is read as a whole.
    pub fn of(body: Body, sequence: Sequence, limit: usize) -> Self {
        ObjectStream {
            body,
            items: JsonItems::new(sequence, limit),
            sequence,
            permit: None,
            bytes: 0,
        }
    }

    /// The next object; `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// The answer ends early, or does not continue.
    pub async fn next(&mut self) -> Result<Option<StreamedObject>, kube::Error> {
        loop {
            let largest = self.items.next_bytes().max(self.items.kept_bytes());
            if largest > SMALL && self.permit.is_none() {
                // It is never closed.
                self.permit = LARGE_OBJECT.acquire().await.ok();
            }
            if let Some(item) = self.items.pop() {
                return Ok(Some(self.object(item)));
            }
            match self.piece().await? {
                Some(piece) => {
                    self.bytes += piece.len();
                    self.items.feed(&piece);
                }
                None if self.sequence == Sequence::List && self.items.around().is_none() => {
                    return Err(kube::Error::Service(
                        "the answer ends before the list does".into(),
                    ));
                }
                None => return Ok(None),
            }
        }
    }

    /// The list without its objects, after its end.
    pub fn around(&self) -> &[u8] {
        self.items.around().unwrap_or_default()
    }

    /// How many bytes were read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, kube::Error> {
        let is_waiting = self.sequence == Sequence::Values && self.items.open_bytes() == 0;
        loop {
            let frame = self.body.frame();
            let frame = if is_waiting {
                // A watch may be silent.
                frame.await
            } else {
                let late = |_| {
                    kube::Error::Service(format!("no answer from the API server within {TIMEOUT:?}").into())
                };
                tokio::time::timeout(TIMEOUT, frame).await.map_err(late)?
            };
            match frame {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn object(&mut self, item: JsonItem) -> StreamedObject {
        match item {
            JsonItem::Whole(bytes) => {
                let permit = self.permit.take_if(|_| bytes.len() > SMALL);
                // The API server writes UTF-8 only, so nothing is copied.
                let text = String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                StreamedObject::Whole(ObjectText { text, permit })
            }
            JsonItem::TooLarge(bytes) => {
                self.permit = None;
                StreamedObject::TooLarge(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }
}

/// The namespace and name of an object that is too large, from its beginning, as in `shop/web`.
pub fn name_in(beginning: &str) -> String {
    let of = |key| at(beginning, &["metadata", key]).unwrap_or("?").trim_matches('"');
    format!("{}/{}", of("namespace"), of("name"))
}
