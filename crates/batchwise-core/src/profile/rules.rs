//! Which component a source file's functions belong to, and the few functions that are not their file's.

use super::Component::{self, Copy, Device, Lock, Memory, Other, Scheduling, Skb, TcpIp};

/// What a function says of a sample in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It is this component's.
    Of(Component),
    /// It works for whoever calls it: memset, lists, trees.
    Callers,
}

use Class::{Callers, Of};

/// By the beginning of the path; the longest one counts.
const PATHS: &[(&str, Class)] = &[
    ("", Of(Other)),
    ("arch/x86/lib/", Callers),
    ("arch/x86/lib/copy_", Of(Copy)),
    ("arch/x86/lib/usercopy", Of(Copy)),
    ("arch/x86/lib/retpoline", Callers),
    ("arch/x86/mm/", Of(Memory)),
    ("arch/x86/kernel/paravirt-spinlocks", Of(Lock)),
    ("arch/arm64/lib/", Callers),
    ("arch/arm64/lib/copy_", Of(Copy)),
    ("arch/arm64/mm/", Of(Memory)),
    ("drivers/net/", Of(Device)),
    ("drivers/virtio/", Of(Device)),
    ("drivers/infiniband/", Of(Device)),
    ("drivers/iommu/", Of(Device)),
    ("kernel/dma/", Of(Device)),
    ("kernel/futex", Of(Scheduling)),
    ("kernel/locking/", Of(Lock)),
    ("kernel/sched/", Of(Scheduling)),
    ("lib/", Callers),
    ("lib/iov_iter", Of(Copy)),
    ("lib/usercopy", Of(Copy)),
    ("mm/", Of(Memory)),
    ("mm/usercopy", Of(Copy)),
    ("net/", Of(TcpIp)),
    ("net/8021q/", Of(Device)),
    ("net/bridge/", Of(Device)),
    ("net/core/datagram", Of(Copy)),
    ("net/core/dev", Of(Device)),
    ("net/core/flow_dissector", Of(Device)),
    ("net/core/gro", Of(Device)),
    ("net/core/gso", Of(Device)),
    ("net/core/link_watch", Of(Device)),
    ("net/core/net-sysfs", Of(Device)),
    ("net/core/netdev", Of(Device)),
    ("net/core/page_pool", Of(Memory)),
    ("net/core/skbuff", Of(Skb)),
    ("net/core/xdp", Of(Device)),
    ("net/ethernet/", Of(Device)),
    ("net/openvswitch/", Of(Device)),
    ("net/packet/", Of(Device)),
    ("net/sched/", Of(Device)),
    ("net/xdp/", Of(Device)),
];

/// The class of what is in this file of the kernel's sources.
pub fn of_path(path: &str) -> Class {
    let known = PATHS.iter().filter(|(start, _)| path.starts_with(start));
    let longest = known.max_by_key(|(start, _)| start.len());
    longest.map_or(Of(Other), |(_, class)| *class)
}

/// By the beginning of the name; the longest one counts.
const NAMES: &[(&str, Class)] = &[
    // thunks that the compiler calls through
    ("__x86_indirect_", Callers),
    ("__x86_return_", Callers),
    ("retbleed_", Callers),
    ("srso_", Callers),
    ("__fentry__", Callers),
    // of headers, where the compiler did not put them into their callers
    ("native_read_msr", Callers),
    ("native_write_msr", Callers),
    // what macros define: entries of system calls, faults and interrupts
    ("asm_", Of(Other)),
    ("entry_", Of(Other)),
    ("exc_", Of(Other)),
    ("sysvec_", Of(Other)),
    ("common_interrupt", Of(Other)),
    ("__do_sys_", Of(Other)),
    ("__se_sys_", Of(Other)),
    ("__x64_sys_", Of(Other)),
    ("__arm64_sys_", Of(Other)),
    // assembly, which has no functions for who reads sources
    ("memcpy", Callers),
    ("__memcpy", Callers),
    ("memmove", Callers),
    ("__memmove", Callers),
    ("memset", Callers),
    ("__memset", Callers),
    ("memcmp", Callers),
    ("__pi_mem", Callers),
    ("clear_page", Of(Memory)),
    ("copy_page", Of(Memory)),
    ("copy_user_", Of(Copy)),
    ("rep_movs_alternative", Of(Copy)),
    ("rep_stos_alternative", Of(Copy)),
    ("__arch_copy_", Of(Copy)),
    ("bpf_prog_", Of(Other)),
    ("bpf_trampoline_", Of(Other)),
    ("bpf_dispatcher_", Of(Other)),
    // a socket's lock
    ("lock_sock_nested", Of(Lock)),
    ("__lock_sock", Of(Lock)),
    ("release_sock", Of(Lock)),
    ("__local_bh_enable_ip", Of(Lock)),
    // copies that live beside other code
    ("skb_copy_datagram_", Of(Copy)),
    ("skb_copy_and_csum_datagram", Of(Copy)),
    ("skb_splice_from_iter", Of(Copy)),
];

/// The class of a function of this name, whatever its file.
pub fn of_function(name: &str) -> Option<Class> {
    let known = NAMES.iter().filter(|(start, _)| name.starts_with(start));
    let longest = known.max_by_key(|(start, _)| start.len())?;
    Some(longest.1)
}
