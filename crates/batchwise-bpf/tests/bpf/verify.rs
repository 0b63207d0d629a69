//! All programs of all subcommands on the running kernel.

use batchwise_bpf::features::LIMIT;
use batchwise_bpf::features::Subcommand;
use batchwise_bpf::verify::load;

use crate::kernel::need_root;

#[test]
fn every_program_loads_and_leaves_the_verifier_half_of_its_limit() {
    need_root();
    for subcommand in Subcommand::ALL {
        let programs = load(subcommand).expect("programs that this kernel takes");
        assert!(!programs.is_empty(), "{subcommand}");
        for program in programs {
            let count = program.instructions.unwrap_or(0);
            let half = LIMIT / 2;
            assert!(count <= half, "{subcommand}: {program:?}, limit {LIMIT}");
        }
    }
}
