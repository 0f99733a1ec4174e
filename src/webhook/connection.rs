//! One connection from accept to close: TLS handshake, HTTP/1.1 or HTTP/2, and the clock that closes slow
//! connections.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::Router;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;
use tower::Service as _;

use super::connection_stats::{ConnectionStats, RequestGuard};
use super::eviction::ConnectionGuard;
use super::limits::{Limits, MAX_HEAD, STREAM_WINDOW};

/// The stage of the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ServerStage {
    Serving,
    /// Keeps serving, but asks clients to reconnect for their next request. A connection that is closed while
    /// a client sends fails that request, and the API server does not retry a review.
    Leaving,
    /// Finishes the requests in flight.
    Draining,
    /// Drops the requests in flight.
    Over,
}

/// Serves one connection until it closes, stalls, or the server stops; a plain-HTTP connection serves one
/// request.
pub(super) async fn run(
    tcp: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Arc<Limits>,
    connection: &ConnectionGuard,
    mut stage: watch::Receiver<ServerStage>,
) {
    // Without it, the kernel delays the last segment of an answer until the previous one is acknowledged.
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Some(tls) = tls else {
        connection.activity.leaving.store(true, Relaxed);
        return serve_connection(tcp, false, router, &limits, connection, stage).await;
    };
    let accepted = tokio::select! {
        accepted = timeout(limits.handshake_timeout, tls.accept(tcp)) => accepted,
        _ = stage.wait_for(|stage| *stage >= ServerStage::Draining) => return,
    };
    match accepted {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            serve_connection(stream, is_http2, router, &limits, connection, stage).await;
        }
        // Port scans and TCP probes also end here, so this is not a warning. A client that does not trust the
        // CA sends an alert, which `error` contains.
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_connection<IO>(
    io: IO,
    is_http2: bool,
    router: Router,
    limits: &Limits,
    connection: &ConnectionGuard,
    stage: watch::Receiver<ServerStage>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::clone(&connection.activity);
    if *stage.borrow() != ServerStage::Serving {
        activity.leaving.store(true, Relaxed);
    }
    let seen = Arc::clone(&activity);
    let io = TokioIo::new(InspectReader::new(io, move |bytes: &[u8]| {
        if !bytes.is_empty() {
            seen.head_begun.store(true, Relaxed);
        }
    }));
    let clock = ConnectionClock::new(Arc::clone(&activity), limits, is_http2);
    let client = Arc::clone(&connection.client);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&client));
        // A request is in flight until it is answered and its body is freed.
        let busy = RequestGuard::new(&activity);
        let with_body = busy.clone();
        let request = request.map(|body| {
            body.map_err(move |error| {
                let _held = &with_body;
                error
            })
        });
        let answer = router.clone().call(request);
        async move {
            let mut response = answer.await?;
            if response.status() == StatusCode::OK {
                busy.0.serve(Instant::now());
            }
            // HTTP/2 uses frames for this and forbids the header.
            if !is_http2 && busy.0.leaving.load(Relaxed) {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = protocol(is_http2);
    drive(builder.serve_connection(io, service), clock, stage).await;
}

/// HTTP/2 or HTTP/1.1, within its bounds.
fn protocol(is_http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        // Go's clients open this many streams before they receive the server's limit.
        .max_concurrent_streams(100)
        .max_send_buf_size(64 << 10)
        .max_header_list_size(MAX_HEAD.into())
        // The body bytes of a stream that waits for capacity stay in its window and are not counted. The
        // connection's window holds 64 full stream windows, so that small reviews overtake waiting large
        // ones.
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(64 * STREAM_WINDOW);
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper's own timeout also closes idle connections, and sets a timer for every request: see
        // `ConnectionClock`.
        .header_read_timeout(None)
        .max_headers(64)
        // Bounds the head, and one read of a body.
        .max_buf_size(MAX_HEAD.into());
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}

/// Polls a connection until it ends.
async fn drive<C>(connection: C, mut clock: ConnectionClock, mut stage: watch::Receiver<ServerStage>)
where
    C: GracefulConnection<Error: std::fmt::Display>,
{
    let mut connection = pin!(connection);
    let mut known = ServerStage::Serving;
    let mut shut_at = None;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
                return;
            }
            reached = stage.wait_for(|stage| *stage > known) => match reached.map(|stage| *stage) {
                Ok(ServerStage::Leaving) => {
                    known = ServerStage::Leaving;
                    clock.activity.leaving.store(true, Relaxed);
                }
                Ok(ServerStage::Draining) => {
                    known = ServerStage::Draining;
                    connection.as_mut().graceful_shutdown();
                }
                // The sender is dropped: the server has stopped.
                _ => return,
            },
            pace = clock.tick() => match (pace, shut_at) {
                (ConnectionState::Stalled, _) => return,
                (ConnectionState::Idle, None) => {
                    shut_at = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                // Asked to close, idle, and still open: the client does not read what was sent.
                (ConnectionState::Idle, Some(at)) if at.elapsed() > clock.header_timeout => return,
                (ConnectionState::Fine, _) | (ConnectionState::Idle, Some(_)) => {}
            },
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionState {
    Fine,
    /// The head of a request takes too long.
    Stalled,
    /// No request for longer than the idle timeout.
    Idle,
}

/// Checks a connection periodically, so that no request has to set a timer.
struct ConnectionClock {
    activity: Arc<ConnectionStats>,
    ticks: tokio::time::Interval,
    header_timeout: Duration,
    idle_timeout: Duration,
    is_http2: bool,
    requests: u64,
    quiet_since: Instant,
    head_since: Option<Instant>,
}

impl ConnectionClock {
    fn new(activity: Arc<ConnectionStats>, limits: &Limits, is_http2: bool) -> Self {
        let mut ticks = interval((limits.header_timeout / 4).max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            activity,
            ticks,
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            is_http2,
            requests: 0,
            quiet_since: Instant::now(),
            head_since: None,
        }
    }

    async fn tick(&mut self) -> ConnectionState {
        self.ticks.tick().await;
        self.check(Instant::now())
    }

    fn check(&mut self, now: Instant) -> ConnectionState {
        let requests = self.activity.requests.load(Relaxed);
        if self.activity.in_flight.load(Relaxed) > 0 || requests != self.requests {
            self.requests = requests;
            self.quiet_since = now;
            self.head_since = None;
            return ConnectionState::Fine;
        }
        let quiet = now.saturating_duration_since(self.quiet_since);
        if requests == 0 {
            return if quiet >= self.header_timeout {
                ConnectionState::Stalled
            } else {
                ConnectionState::Fine
            };
        }
        // HTTP/2 sends frames while it is idle, so received bytes do not indicate a request head.
        if !self.is_http2 && self.activity.head_begun.load(Relaxed) {
            let since = *self.head_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.header_timeout {
                return ConnectionState::Stalled;
            }
        }
        if quiet >= self.idle_timeout {
            ConnectionState::Idle
        } else {
            ConnectionState::Fine
        }
    }
}
