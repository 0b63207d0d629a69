//! batchwise-bpf
