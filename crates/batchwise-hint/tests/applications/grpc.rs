//! gRPC through tonic: the layer's one line, against the test's own clock.

use std::convert::Infallible;
use std::future::{Future, pending, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use batchwise_hint::Hints;
use batchwise_hint::tower::{HintLayer, HttpHintLayer};
use http_body_util::{BodyExt, Full};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, Service, service_fn};

use crate::hint_socket;
use crate::support::Agent;

/// What the server takes for an answer, beyond its own time.
const WORK: Duration = Duration::from_millis(2);
const CALLERS: u32 = 16;
const CALLS: u32 = 100;

#[derive(Clone)]
struct Slow<S>(S);

impl<S, R> Service<R> for Slow<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send + 'static>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            tokio::time::sleep(WORK).await;
            answer.await
        })
    }
}

#[test]
fn grpc_calls_are_timed_as_their_callers_time_them() {
    let socket = hint_socket();
    let agent = Agent::listen(&socket.path);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(calls(&agent));
}

async fn calls(agent: &Agent) {
    let (_health, service) = tonic_health::server::health_reporter();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("its address");
    let server = Server::builder()
        .layer(tower::layer::layer_fn(Slow))
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(server);

    let endpoint = Endpoint::try_from(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("the server is there");
    let hints = Hints::for_service(address);
    // the one line
    let channel = HttpHintLayer::new(hints).layer(channel);
    let client = HealthClient::new(channel);

    let application = agent.accept();
    let mut handle = agent.find(&application, address);
    let before = handle.read();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let mut own = Duration::ZERO;
                for _ in 0..CALLS {
                    let begin = Instant::now();
                    let answer = client.check(HealthCheckRequest::default()).await;
                    own += begin.elapsed();
                    answer.expect("healthy");
                }
                own
            })
        })
        .collect();
    let mut own = Duration::ZERO;
    for caller in callers {
        own += caller.await.expect("a caller");
    }
    server.abort();
    let (calls, hint) = handle.mean_since(&before);
    assert_eq!(calls, u64::from(CALLERS * CALLS));
    let own = own.as_nanos() as f64 / calls as f64;
    let ratio = hint / own;
    println!("{calls} calls: {hint:.0} ns by hints, {own:.0} ns by the callers: {ratio:.4}");
    // the same requests, timed twice: only the way through the client's stub lies between
    assert!((0.98..=1.0).contains(&ratio), "{ratio}");
}

#[test]
fn a_request_ends_with_its_response_or_with_its_caller_losing_interest() {
    let socket = hint_socket();
    let agent = Agent::listen(&socket.path);
    let service = "10.0.0.1:7".parse().expect("an address");
    let hints = Hints::for_service(service);
    let application = agent.accept();
    let mut handle = agent.find(&application, service);
    let mut outstanding = || {
        let sums = handle.read().sums;
        (sums.created, sums.created - sums.completed)
    };
    let mut cx = Context::from_waker(Waker::noop());

    let mut answers =
        HintLayer::new(hints.clone()).layer(service_fn(|n: u32| ready(Ok::<_, Infallible>(n))));
    let mut answer = pin!(answers.call(1));
    assert_eq!(outstanding(), (1, 1));
    assert!(answer.as_mut().poll(&mut cx).is_ready());
    assert_eq!(outstanding(), (1, 0));

    let mut hangs = HintLayer::new(hints.clone())
        .layer(service_fn(|_: u32| pending::<Result<(), Infallible>>()));
    let mut never = Box::pin(hangs.call(1));
    assert!(never.as_mut().poll(&mut cx).is_pending());
    assert_eq!(outstanding(), (2, 1));
    drop(never);
    assert_eq!(outstanding(), (2, 0));

    let mut http = HttpHintLayer::new(hints).layer(service_fn(|_: u32| {
        ready(Ok::<_, Infallible>(http::Response::new(
            Full::<&[u8]>::new(b"text"),
        )))
    }));
    let mut answer = pin!(http.call(1));
    let Poll::Ready(Ok(response)) = answer.as_mut().poll(&mut cx) else {
        panic!("no response");
    };
    assert_eq!(outstanding(), (3, 1), "the body has not been read");
    let mut frame = response.into_body();
    let Poll::Ready(Some(Ok(_))) = pin!(frame.frame()).poll(&mut cx) else {
        panic!("no body");
    };
    assert_eq!(outstanding(), (3, 0));
}
