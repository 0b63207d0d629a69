//! Compiles the experiments' own BPF programs and generates their Rust skeletons.

use std::path::PathBuf;
use std::{env, ffi::OsString};

use libbpf_cargo::SkeletonBuilder;

/// Where they are, and the names of their skeletons.
const SOURCES: [(&str, &str); 2] = [
    ("src/passive/cost/vary.bpf.c", "vary"),
    ("src/balance/cost/again.bpf.c", "again"),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19"));
    for (source, name) in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        SkeletonBuilder::new()
            .source(source)
            .clang(&clang)
            // Debian keeps <asm/types.h> in the multiarch folder
            .clang_args([
                "-Wall",
                "-Werror",
                &format!("-I/usr/include/{arch}-linux-gnu"),
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|e| {
                panic!("{source} does not build (is clang-19 installed? `make setup`): {e:?}")
            });
    }
}
