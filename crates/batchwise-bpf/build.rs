//! Compiles the BPF programs and generates their Rust skeletons, types included, from the C sources.

use std::collections::BTreeSet;
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
    let generated = out.join(format!("{name}.skel.rs"));
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
        .build_and_generate(&generated)
        .unwrap_or_else(|e| {
            panic!("{source} does not build (is clang-19 installed? `make setup`): {e:?}")
        });
    let types = fs::read_to_string(generated).expect("what was just written");
    fs::write(out.join(format!("{name}.plain.rs")), plain(&types)).expect("a folder to write to");
}

/// `Plain` for the types of a skeleton that are made of integers. What has padding is told by `Plain` itself.
fn plain(skeleton: &str) -> String {
    let mut known: BTreeSet<String> = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]
        .map(str::to_owned)
        .into();
    let mut impls = String::new();
    let all = declarations(skeleton);
    // a type may stand before those that it is made of
    loop {
        let before = known.len();
        for (name, kind, fields) in &all {
            let element = |field: &&str| {
                field
                    .trim_start_matches('[')
                    .split(';')
                    .next()
                    .map(str::to_owned)
            };
            let mut elements = fields.iter().filter_map(element);
            if known.contains(*name) || !elements.all(|of| known.contains(&of)) {
                continue;
            }
            known.insert((*name).to_owned());
            let lengths = fields.iter().map(|of| format!("<{of} as Plain>::FILLED"));
            let lengths: Vec<_> = lengths.collect();
            let filled = match *kind {
                "union" => format!("least(&[{}])", lengths.join(", ")),
                _ => lengths.join(" + "),
            };
            impls += &format!(
                "// SAFETY: all of it is integers, so long together.\n\
                 unsafe impl Plain for {name} {{ const FILLED: usize = {filled}; }}\n"
            );
        }
        if known.len() == before {
            return format!("use super::types::*;\nuse crate::plain::{{Plain, least}};\n{impls}");
        }
    }
}

/// Name, kind and types of the fields of each struct (an enum is one of a number) and union.
fn declarations(skeleton: &str) -> Vec<(&str, &str, Vec<&str>)> {
    let types = skeleton
        .split_once("pub mod types {")
        .map_or("", |(_, types)| types);
    let mut found = Vec::new();
    let mut lines = types.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let words = line
            .strip_prefix("pub ")
            .and_then(|line| line.split_once(' '));
        let Some((kind @ ("struct" | "union"), rest)) = words else {
            continue;
        };
        if let Some((name, of)) = rest
            .strip_suffix(");")
            .and_then(|rest| rest.split_once("(pub "))
        {
            found.push((name, kind, vec![of]));
        } else if let Some(name) = rest.strip_suffix(" {") {
            let fields = lines.by_ref().take_while(|line| *line != "}");
            let types = fields.map(|line| line.strip_suffix(',')?.split_once(": "));
            let fields: Vec<_> = types
                .map(|field| field.map_or("unknown", |(_, of)| of))
                .collect();
            found.push((name, kind, fields));
        }
    }
    found
}
