//! Compiles the BPF programs and generates their Rust skeletons, types included, from the C sources.

use std::path::{Path, PathBuf};
use std::{env, ffi::OsString, fs};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let (kernel_arch, multiarch) = match arch.as_str() {
        "x86_64" => ("x86", "x86_64-linux-gnu"),
        "aarch64" => ("arm64", "aarch64-linux-gnu"),
        other => panic!("batchwise-bpf does not know the target architecture {other}"),
    };

    println!("cargo:rerun-if-env-changed=CLANG");
    for folder in [
        "sense", "passive", "balance", "decap", "window", "profile", "traffic", "burst", "flows",
        "lib",
    ] {
        watch(&Path::new("src").join(folder));
    }
    for system in [
        "sense", "flows", "passive", "balance", "decap", "window", "profile", "traffic",
    ] {
        skeleton(system, system, &out, kernel_arch, multiarch);
    }
    skeleton("balance", "probe", &out, kernel_arch, multiarch);
    for part in ["mark", "admit", "queue"] {
        skeleton("burst", part, &out, kernel_arch, multiarch);
    }
}

/// Has the programs built again when the C in this folder changes, not for the Rust beside it.
fn watch(folder: &Path) {
    for file in fs::read_dir(folder).expect("a folder of the sources") {
        let path = file.expect("an entry of it").path();
        if path.extension().is_some_and(|e| e == "c" || e == "h") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

/// `src/<folder>/<name>.bpf.c` to `<name>.skel.rs`.
fn skeleton(folder: &str, name: &str, out: &Path, kernel_arch: &str, multiarch: &str) {
    let source = format!("src/{folder}/{name}.bpf.c");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19"));
    SkeletonBuilder::new()
        .source(&source)
        .clang(clang)
        .clang_args([
            "-Wall",
            "-Werror",
            "-mcpu=v3",
            &format!("-D__TARGET_ARCH_{kernel_arch}"),
            // Debian keeps <asm/types.h> in the multiarch folder, or in the cross compiler's
            &format!("-I/usr/include/{multiarch}"),
            &format!("-I/usr/{multiarch}/include"),
        ])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .unwrap_or_else(|e| {
            panic!("{source} does not build (is clang-19 installed? `make setup`): {e:?}")
        });
}
