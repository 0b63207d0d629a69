//! Compiles the BPF programs and generates their Rust skeleton, types included, from the C sources.

use std::path::PathBuf;
use std::{env, ffi::OsString};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/sense.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let (kernel_arch, multiarch) = match arch.as_str() {
        "x86_64" => ("x86", "x86_64-linux-gnu"),
        "aarch64" => ("arm64", "aarch64-linux-gnu"),
        other => panic!("batchwise-bpf does not know the target architecture {other}"),
    };
    // for tests/; nothing else refers to it, so nothing of it is linked elsewhere
    cc::Build::new()
        .files(["src/bpf/host/twin.c", "src/bpf/host/gaps.c"])
        .warnings(true)
        .compile("bw_twin");

    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=src/bpf");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19"));
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang(clang)
        .clang_args([
            "-Wall",
            "-Werror",
            "-mcpu=v3",
            &format!("-D__TARGET_ARCH_{kernel_arch}"),
            // Debian keeps <asm/types.h> in the multiarch folder
            &format!("-I/usr/include/{multiarch}"),
        ])
        .build_and_generate(out.join("sense.skel.rs"))
        .unwrap_or_else(|e| {
            panic!("{SOURCE} does not build (is clang-19 installed? `make setup`): {e:?}")
        });
}
