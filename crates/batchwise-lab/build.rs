//! Compiles the experiments' own BPF programs and generates their Rust skeleton.

use std::path::{Path, PathBuf};
use std::{env, ffi::OsString};

use libbpf_cargo::SkeletonBuilder;

/// Each becomes `NAME.skel.rs`.
const SOURCES: [(&str, &str); 5] = [
    ("again", "src/packet_cost/again.bpf.c"),
    ("steps", "src/hook_cost/steps.bpf.c"),
    ("calls", "src/window/cost/calls.bpf.c"),
    ("callbacks", "src/drills/callbacks.bpf.c"),
    ("peer", "src/drills/peer.bpf.c"),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    println!("cargo:rerun-if-env-changed=CLANG");
    for (name, source) in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        skeleton(&arch, source, &out.join(format!("{name}.skel.rs")));
    }
}

fn skeleton(arch: &str, source: &str, skeleton: &Path) {
    let kernel_arch = if arch == "aarch64" { "arm64" } else { "x86" };
    SkeletonBuilder::new()
        .source(source)
        .clang(env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19")))
        // Debian keeps <asm/types.h> in the multiarch folder, or in the cross compiler's
        .clang_args([
            "-Wall",
            "-Werror",
            &format!("-D__TARGET_ARCH_{kernel_arch}"),
            &format!("-I/usr/include/{arch}-linux-gnu"),
            &format!("-I/usr/{arch}-linux-gnu/include"),
        ])
        .build_and_generate(skeleton)
        .unwrap_or_else(|e| {
            panic!("{source} does not build (is clang-19 installed? `make setup`): {e:?}")
        });
}
