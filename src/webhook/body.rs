//! Reads the body of a request into one contiguous buffer, within its share of the bytes in flight.

use http_body_util::BodyExt;
use hyper::body::{Body, Buf, Bytes};
use tokio::time::{Instant, timeout_at};

use super::inflight::InflightPermit;
use super::limits::{FIRST, RejectReason};

/// How much of an unwanted body is read and discarded. If the server closes the connection while the client
/// still sends, the client loses the answer; reading costs no memory. The API server sends at most 27 MiB: a
/// request of 3 MiB and a stored object, both escaped.
const DISCARD_AT_MOST: usize = 64 << 20;

/// Why there is no body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyError {
    Shed(RejectReason),
    /// The client disconnected, or sent invalid HTTP.
    Broken,
}

/// What was kept of a body.
#[derive(Debug)]
pub(super) enum ReceivedBody {
    Whole(Bytes),
    /// The first bytes of a body that is too large; the rest is not read yet.
    Head(Bytes),
}

/// Reads the body of a request.
///
/// A body that arrives in one frame is used without a copy. The first bytes of any other body are counted as
/// they arrive. Before more is read, capacity for the complete body must be free, so that two half-read
/// bodies never wait for each other.
pub(super) async fn collect<B>(
    body: &mut B,
    inflight: &InflightPermit,
    max: usize,
) -> Result<ReceivedBody, BodyError>
where
    B: Body + Unpin,
{
    let declared = declared(body);
    let most = if declared.is_some_and(|length| length > max) {
        FIRST
    } else {
        max
    };
    let mut first = Bytes::new();
    let mut buffer: Vec<u8> = Vec::new();
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let Ok(mut data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
            continue;
        };
        let total = first.len() + buffer.len() + data.remaining();
        if total > most {
            inflight.keep_head(FIRST).await.map_err(BodyError::Shed)?;
            return Ok(ReceivedBody::Head(head(
                &[first.as_ref(), buffer.as_slice()],
                &mut data,
            )));
        }
        if total == data.remaining() && total <= FIRST {
            inflight.grow_to(total).await.map_err(BodyError::Shed)?;
            first = data.copy_to_bytes(total);
            continue;
        }
        if total > buffer.capacity() {
            let whole = declared.unwrap_or(max);
            let capacity = if total > FIRST {
                let whole = whole.max(total);
                inflight.take_whole(whole).await.map_err(BodyError::Shed)?;
                whole
            } else {
                let part = whole.clamp(total, FIRST);
                inflight.grow_to(part).await.map_err(BodyError::Shed)?;
                part
            };
            buffer.reserve_exact(capacity - buffer.len());
        }
        buffer.extend_from_slice(&first);
        first = Bytes::new();
        append(&mut buffer, &mut data);
        inflight.received(buffer.len());
    }
    Ok(ReceivedBody::Whole(if buffer.is_empty() {
        first
    } else {
        Bytes::from(buffer)
    }))
}

/// The head of a body: the bytes kept so far, and the part of the last frame that belongs to it.
fn head(before: &[&[u8]; 2], data: &mut impl Buf) -> Bytes {
    let mut head = Vec::with_capacity(FIRST);
    for part in *before {
        let missing = FIRST - head.len();
        append(&mut head, &mut part.take(missing));
    }
    let missing = FIRST - head.len();
    append(&mut head, &mut data.take(missing));
    Bytes::from(head)
}

fn append(buffer: &mut Vec<u8>, data: &mut impl Buf) {
    while data.has_remaining() {
        let chunk = data.chunk();
        buffer.extend_from_slice(chunk);
        let read = chunk.len();
        data.advance(read);
    }
}

/// The length that the client declared.
pub(super) fn declared<B: Body>(body: &B) -> Option<usize> {
    // A length that does not fit into a usize is too large in any case.
    body.size_hint()
        .exact()
        .map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Discards the rest of a body while the answer is sent, so that the client can read the answer and reuse the
/// connection. Stops at `deadline`, or when other requests need the capacity of `inflight`.
pub(super) fn discard<B>(mut body: B, inflight: InflightPermit, deadline: Instant)
where
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
{
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let read = async {
            let mut seen = 0;
            while let Some(Ok(frame)) = body.frame().await {
                seen += frame.data_ref().map_or(0, Buf::remaining);
                if seen > DISCARD_AT_MOST {
                    break;
                }
            }
        };
        tokio::select! {
            () = inflight.refused() => {}
            _ = timeout_at(deadline, read) => {}
        }
    });
}
