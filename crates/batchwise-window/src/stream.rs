//! A tokio TCP stream that takes only what TCP can send.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::driver::Driver;
use crate::set::{Key, Mode};

/// Wraps a `TcpStream`: a write takes as many bytes as TCP can send at once, and waits where it can send
/// none. What is written next is chosen when it can leave, not a buffer's length earlier.
pub struct WindowedStream {
    stream: TcpStream,
    key: Key,
    driver: &'static Driver,
}

impl WindowedStream {
    /// As [`Set::add`](crate::Set::add).
    ///
    /// # Errors
    /// When the stream is not connected, or the process may have no more descriptors or threads.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        let driver = Driver::get()?;
        let key = driver.set.add(stream.as_fd(), 1)?;
        Ok(Self {
            stream,
            key,
            driver,
        })
    }

    /// Who rings for it, now.
    pub fn mode(&self) -> Mode {
        self.driver.set.mode_of(self.key)
    }

    /// The stream.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes that can be written now.
    fn poll_space(&self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        // first, so that a wake-up that comes meanwhile finds it
        self.driver.wake(self.key, cx.waker());
        match self.driver.set.wait(self.key, self.stream.as_fd())? {
            Some(space) => Poll::Ready(Ok(space as usize)),
            None => Poll::Pending,
        }
    }

    /// Lets the set know what was written.
    fn told(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.driver.set.wrote(self.key, bytes);
        }
        written
    }
}

impl Drop for WindowedStream {
    fn drop(&mut self) {
        self.driver.forget(self.key);
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
