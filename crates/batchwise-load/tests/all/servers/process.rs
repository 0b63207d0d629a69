//! A server in a process of its own, on a free port of the loopback interface.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Killed at the end.
pub struct Server {
    process: Child,
    pub addr: SocketAddr,
}

impl Server {
    /// Starts the command that `command` makes for an address, and waits until it listens.
    pub fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        // one at a time: until a server listens on its port, the kernel may offer it to another
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let addr = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut command = command(addr);
        let program = command.get_program().to_owned();
        let process = command
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("{program:?} is needed (make setup): {why}"));
        let mut server = Self { process, addr };
        for _ in 0..3000 {
            let ended = server.process.try_wait().unwrap();
            assert!(ended.is_none(), "is {addr} taken? {program:?}: {ended:?}");
            if TcpStream::connect(addr).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{program:?} does not listen on {addr}");
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
