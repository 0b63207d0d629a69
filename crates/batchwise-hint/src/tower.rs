//! Hints for [tower](https://docs.rs/tower) services: a line for all of a client's requests.
//!
//! [`HttpHintLayer`] is for clients of HTTP, and with it gRPC: a request is complete when the
//! response's body has come to its end. [`HintLayer`] is for any service: a request is complete when
//! the response is there. Either way a request that is dropped is complete, too.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Hints, Request};

/// Counts a request from its call to its response.
#[derive(Clone, Debug)]
pub struct HintLayer {
    hints: Hints,
}

impl HintLayer {
    /// Counts with these hints.
    pub fn new(hints: Hints) -> Self {
        Self { hints }
    }
}

impl<S> Layer<S> for HintLayer {
    type Service = HintService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let hints = self.hints.clone();
        HintService { inner, hints }
    }
}

/// The service that [`HintLayer`] makes.
#[derive(Clone, Debug)]
pub struct HintService<S> {
    inner: S,
    hints: Hints,
}

impl<S: Service<R>, R> Service<R> for HintService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = HintFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let outstanding = Some(self.hints.request());
        HintFuture {
            inner: self.inner.call(request),
            outstanding,
        }
    }
}

pin_project! {
    /// The future of a [`HintService`].
    #[derive(Debug)]
    pub struct HintFuture<F> {
        #[pin]
        inner: F,
        outstanding: Option<Request>,
    }
}

impl<F: Future> Future for HintFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        *this.outstanding = None;
        Poll::Ready(output)
    }
}

/// Counts an HTTP request from its call to the end of the response's body.
#[derive(Clone, Debug)]
pub struct HttpHintLayer {
    hints: Hints,
}

impl HttpHintLayer {
    /// Counts with these hints.
    pub fn new(hints: Hints) -> Self {
        Self { hints }
    }
}

impl<S> Layer<S> for HttpHintLayer {
    type Service = HttpHintService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let hints = self.hints.clone();
        HttpHintService { inner, hints }
    }
}

/// The service that [`HttpHintLayer`] makes.
#[derive(Clone, Debug)]
pub struct HttpHintService<S> {
    inner: S,
    hints: Hints,
}

impl<S, R, B> Service<R> for HttpHintService<S>
where
    S: Service<R, Response = http::Response<B>>,
    B: Body,
{
    type Response = http::Response<HintBody<B>>;
    type Error = S::Error;
    type Future = HttpHintFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let outstanding = Some(self.hints.request());
        HttpHintFuture {
            inner: self.inner.call(request),
            outstanding,
        }
    }
}

pin_project! {
    /// The future of an [`HttpHintService`].
    #[derive(Debug)]
    pub struct HttpHintFuture<F> {
        #[pin]
        inner: F,
        outstanding: Option<Request>,
    }
}

impl<F, B, E> Future for HttpHintFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: Body,
{
    type Output = Result<http::Response<HintBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        let outstanding = this.outstanding.take();
        Poll::Ready(result.map(|response| {
            response.map(|inner| HintBody {
                // nothing more will come
                outstanding: outstanding.filter(|_| !inner.is_end_stream()),
                inner,
            })
        }))
    }
}

pin_project! {
    /// A response's body, whose end completes the request.
    #[derive(Debug)]
    pub struct HintBody<B> {
        #[pin]
        inner: B,
        outstanding: Option<Request>,
    }
}

impl<B: Body> Body for HintBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            *this.outstanding = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: Default> Default for HintBody<B> {
    fn default() -> Self {
        Self {
            inner: B::default(),
            outstanding: None,
        }
    }
}
