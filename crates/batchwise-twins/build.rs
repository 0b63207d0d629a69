//! Compiles the helper-free C of the BPF programs for the host, and generates Rust types from its structs.

use std::path::PathBuf;
use std::{env, ffi::OsString};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=src");
    for room in ["lib", "sense", "flows", "balance", "decap"] {
        println!("cargo:rerun-if-changed=../batchwise-bpf/src/{room}");
    }
    let mut build = cc::Build::new();
    build
        .files(
            [
                "admit", "asks", "endpoint", "gaps", "icmp", "packet", "space", "tunnel",
            ]
            .map(|f| format!("src/{f}.c")),
        )
        .include("../batchwise-bpf/src")
        .warnings(true)
        .flag("-Wno-unknown-pragmas");
    // `make fuzz`
    println!("cargo:rerun-if-env-changed=BATCHWISE_SANITIZE");
    if let Some(flags) = env::var_os("BATCHWISE_SANITIZE") {
        build
            .compiler("clang-19")
            .flags(flags.to_string_lossy().split(' '));
    }
    build.compile("bw_twins");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19"));
    SkeletonBuilder::new()
        .source("src/types.bpf.c")
        .clang(clang)
        .clang_args([
            "-I../batchwise-bpf/src",
            // Debian keeps <asm/types.h> in the multiarch folder, or in the cross compiler's
            &format!("-I/usr/include/{arch}-linux-gnu"),
            &format!("-I/usr/{arch}-linux-gnu/include"),
        ])
        .build_and_generate(out.join("types.skel.rs"))
        .expect("src/types.bpf.c builds (is clang-19 installed? `make setup`)");
}
