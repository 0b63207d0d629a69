//! Compiles the experiments' own BPF programs and generates their Rust skeleton.

use std::path::PathBuf;
use std::{env, ffi::OsString};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/packet_cost/again.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={SOURCE}");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang(env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19")))
        // Debian keeps <asm/types.h> in the multiarch folder, or in the cross compiler's
        .clang_args([
            "-Wall",
            "-Werror",
            &format!("-I/usr/include/{arch}-linux-gnu"),
            &format!("-I/usr/{arch}-linux-gnu/include"),
        ])
        .build_and_generate(out.join("again.skel.rs"))
        .unwrap_or_else(|e| {
            panic!("{SOURCE} does not build (is clang-19 installed? `make setup`): {e:?}")
        });
}
