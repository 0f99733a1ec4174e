//! Reads a request's body into one contiguous piece, within its share of the bytes in flight.

use http_body_util::BodyExt;
use hyper::body::{Body, Buf, Bytes};
use tokio::time::{Instant, timeout_at};

use super::limits::Shed;
use super::shares::Share;

/// The first room of a body that comes in pieces.
const FIRST_STEP: usize = 64 << 10;

/// What is read and thrown away of a body that was refused. An answer is lost to the client when the connection is
/// closed on bytes that it still sends; reading them costs no memory.
const DISCARD_AT_MOST: usize = 32 << 20;

/// Why there is no body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    TooLarge,
    Shed(Shed),
    /// The client went away, or what it sent is no HTTP.
    Broken,
}

/// The body of a request.
///
/// A body that arrives in one frame is used as it came. Of any other, the room is doubled as it is needed, whatever length
/// was declared; every byte of room is taken from `share` before it is allocated.
pub(super) async fn collect<B>(body: &mut B, share: &Share, max: usize) -> Result<Bytes, Unread>
where
    B: Body + Unpin,
{
    let declared = declared(body);
    let mut first = Bytes::new();
    let mut room: Vec<u8> = Vec::new();
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let Ok(mut data) = frame.map_err(|_| Unread::Broken)?.into_data() else {
            continue;
        };
        let total = first.len() + room.len() + data.remaining();
        if total > max {
            return Err(Unread::TooLarge);
        }
        if total == data.remaining() {
            share.grow_to(total).map_err(Unread::Shed)?;
            first = data.copy_to_bytes(total);
            continue;
        }
        if total > room.capacity() {
            let doubled = room.capacity().saturating_mul(2).max(FIRST_STEP);
            let capacity = doubled.min(declared.unwrap_or(max)).max(total);
            share.grow_to(capacity).map_err(Unread::Shed)?;
            room.reserve_exact(capacity - room.len());
        }
        room.extend_from_slice(&first);
        first = Bytes::new();
        while data.has_remaining() {
            let chunk = data.chunk();
            room.extend_from_slice(chunk);
            let read = chunk.len();
            data.advance(read);
        }
    }
    Ok(if room.is_empty() { first } else { Bytes::from(room) })
}

/// The length that the client declared.
pub(super) fn declared<B: Body>(body: &B) -> Option<usize> {
    // What does not fit into a usize is too large all the same.
    body.size_hint()
        .exact()
        .map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Throws away the rest of a body beside its answer, so that the client gets to read the answer and the connection
/// can be used again; gives up at `deadline`, or when `share` is needed for others.
pub(super) fn discard<B>(mut body: B, share: Share, deadline: Instant)
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
            () = share.refused() => {}
            _ = timeout_at(deadline, read) => {}
        }
    });
}
