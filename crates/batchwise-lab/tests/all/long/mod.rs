//! Minutes each, for `make test-all`.

mod balance_faults;
mod drills;
