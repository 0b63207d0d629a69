//! What a request costs the application: create + complete, beside nothing, beside reading the
//! system's clock twice, and beside the two time stamps that it cannot do without.

use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use batchwise_hint::{Hints, SOCKET_VARIABLE, ffi};
use criterion::{Criterion, criterion_group, criterion_main};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, listen, socket,
};

fn pairs(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hint.sock");
    // SAFETY: this process has one thread so far.
    unsafe { std::env::set_var(SOCKET_VARIABLE, &path) };
    let hints = Hints::for_service("127.0.0.1:1".parse().expect("an address"));

    let mut group = c.benchmark_group("pair");
    group.bench_function("nothing", |b| b.iter(|| black_box(&hints)));
    group.bench_function("clock_gettime", |b| {
        b.iter(|| (black_box(Instant::now()), black_box(Instant::now())));
    });
    #[cfg(target_arch = "x86_64")]
    group.bench_function("two time stamps", |b| {
        // SAFETY: every x86-64 has the instruction, and benchmarks run where it is allowed.
        let stamp = || unsafe { std::arch::x86_64::_rdtsc() };
        b.iter(|| (black_box(stamp()), black_box(stamp())));
    });
    group.bench_function("no agent", |b| b.iter(|| pair(black_box(&hints))));

    let flags = SockFlag::SOCK_CLOEXEC;
    let agent = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    let address = UnixAddr::new(&path).expect("its address");
    bind(agent.as_raw_fd(), &address).expect("it is free");
    listen(&agent, Backlog::new(1).expect("a number")).expect("it listens");
    accept(agent.as_raw_fd()).expect("the hints come");
    std::thread::sleep(Duration::from_millis(10));

    group.bench_function("agent", |b| b.iter(|| pair(black_box(&hints))));
    group.bench_function("agent, from C", |b| {
        let hint: *const Hints = &hints;
        b.iter(|| {
            // SAFETY: the handle lives.
            unsafe {
                ffi::bw_hint_create(black_box(hint), 1);
                ffi::bw_hint_complete(black_box(hint), 1);
            }
        });
    });
    group.finish();
}

fn pair(hints: &Hints) {
    hints.create(1);
    hints.complete(1);
}

criterion_group!(benches, pairs);
criterion_main!(benches);
