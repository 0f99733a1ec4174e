//! HTTP servers on loopback that a function answers.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Any body: whole, a stream, or passed on.
pub type HttpBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A response of status 200 with this text.
pub fn text(content_type: &str, text: impl Into<Bytes>) -> Response<HttpBody> {
    let body = Full::from(text.into()).map_err(Into::into).boxed_unsync();
    let response = Response::builder().header("content-type", content_type);
    response.body(body).unwrap()
}

/// A response with JSON.
pub fn json(status: u16, json: &Value) -> Response<HttpBody> {
    let mut response = text("application/json", json.to_string());
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// A response with JSON whose connection breaks in the middle.
pub fn json_cut_short(json: &Value) -> Response<HttpBody> {
    let mut half = json.to_string().into_bytes();
    let length = half.len();
    half.truncate(length / 2);
    let frames = [Ok(Frame::data(half.into())), Err("cut short".into())];
    let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
    let response = Response::builder().header("content-type", "application/json");
    response.header("content-length", length).body(body).unwrap()
}

/// Starts a server that answers with a function, until the process ends. `None`: never.
pub fn serve(
    answer: impl Fn(&Request<Bytes>) -> Option<Response<HttpBody>> + Clone + Send + 'static,
) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let response = answer(&Request::from_parts(head, body));
            match response {
                Some(response) => response,
                None => std::future::pending().await,
            }
        }
    };
    std::thread::spawn(move || runtime.block_on(serve_on(listener, None, answer)));
    address
}

/// Answers the requests of all connections of a listener.
pub async fn serve_on<A, R, B>(listener: TcpListener, tls: Option<TlsAcceptor>, answer: A)
where
    A: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (tls, answer) = (tls.clone(), answer.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(request);
                async move { Ok::<_, Infallible>(response.await) }
            });
            let http = http1::Builder::new();
            // Clients may close a connection at any time.
            let _ = match tls {
                None => http.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else {
                        return;
                    };
                    http.serve_connection(TokioIo::new(stream), service).await
                }
            };
        });
    }
}
