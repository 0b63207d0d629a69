//! What drivers can do for XDP programs, as the kernel tells it (the netdev family, since Linux 6.3).

/// `NETDEV_XDP_ACT_NDO_XMIT` (uapi/linux/netdev.h).
const TRANSMITS: u64 = 1 << 2;
/// `NETDEV_XDP_ACT_NDO_XMIT_SG`.
const TRANSMITS_PARTS: u64 = 1 << 6;

/// What an interface's driver can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Anything at all.
    pub any: bool,
    /// It transmits what XDP programs of other interfaces redirect to it.
    pub transmits: bool,
    /// Also frames of several parts: those that do not fit a page (jumbo frames).
    pub transmits_parts: bool,
}

/// What the driver of the interface with this index can do, in the calling thread's network
/// namespace; `None`: the kernel does not answer. One that cannot tell answers that there is nothing.
pub fn features(ifindex: u32) -> Option<Features> {
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    let ifindex = ifindex.try_into().ok()?;
    // SAFETY: `opts` is valid for the call and says its size.
    let error = unsafe { libbpf_sys::bpf_xdp_query(ifindex, 0, &raw mut opts) };
    (error == 0).then_some(Features {
        any: opts.feature_flags != 0,
        transmits: opts.feature_flags & TRANSMITS != 0,
        transmits_parts: opts.feature_flags & TRANSMITS_PARTS != 0,
    })
}
