//! A tokio TCP stream that takes only what TCP can send.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::agent::Mode;
use crate::driver::Driver;
use crate::key::Key;

/// Wraps a `TcpStream`: a write takes as many bytes as TCP can send at once, and waits where it can send
/// none. What is written next is chosen when it can leave, not a buffer's length earlier.
pub struct WindowedStream {
    stream: TcpStream,
    /// Its place in the process's set, or why it has none.
    place: Result<(&'static Driver, Key), String>,
}

impl WindowedStream {
    /// Never loses the stream: one that [`Set::add`](crate::Set::add) does not take goes on as it is, and
    /// [`Self::mode`] says why. A server's loop need not end for a client that has reset already.
    pub fn new(stream: TcpStream) -> Self {
        let place = Driver::get().and_then(|driver| {
            let key = driver.set.add(stream.as_fd(), 1)?;
            Ok((driver, key))
        });
        Self {
            stream,
            place: place.map_err(|error| error.to_string()),
        }
    }

    /// Who rings for it, now.
    pub fn mode(&self) -> Mode {
        match &self.place {
            Ok((driver, key)) => driver.set.mode_of(*key),
            Err(why) => Mode::Unwindowed(why.clone()),
        }
    }

    /// The stream.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes that can be written now.
    fn poll_space(&self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        let Ok((driver, key)) = self.place else {
            return Poll::Ready(Ok(usize::MAX));
        };
        // first, so that a wake-up that comes meanwhile finds it
        driver.wake(key, cx.waker());
        match driver.set.wait(key, self.stream.as_fd())? {
            Some(space) => Poll::Ready(Ok(space as usize)),
            None => Poll::Pending,
        }
    }

    /// Lets the set know what was written.
    fn told(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(bytes)), Ok((driver, key))) = (&written, &self.place) {
            driver.set.wrote(*key, *bytes);
        }
        written
    }
}

impl Drop for WindowedStream {
    fn drop(&mut self) {
        if let Ok((driver, key)) = self.place {
            driver.forget(key);
        }
    }
}

impl AsyncRead for WindowedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for WindowedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let space = std::task::ready!(self.poll_space(cx))?;
        let some = &buf[..buf.len().min(space)];
        let written = Pin::new(&mut self.stream).poll_write(cx, some);
        self.told(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let space = std::task::ready!(self.poll_space(cx))?;
        let mut left = space;
        let cut = bufs.iter().map_while(|buf| {
            let some = &buf[..buf.len().min(left)];
            let goes_on = left > 0;
            left -= some.len();
            goes_on.then(|| IoSlice::new(some))
        });
        let some: Vec<_> = cut.collect();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &some);
        self.told(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
