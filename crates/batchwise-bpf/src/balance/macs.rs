//! The MAC addresses that packets come to: those that the interfaces have now.

use std::collections::HashMap;
use std::io;

use nix::ifaddrs::getifaddrs;

use crate::Error;

/// Of each interface, the first byte the lowest; `None`: it has none, or is gone.
pub(super) fn of(interfaces: &[String]) -> Result<Vec<Option<u64>>, Error> {
    if interfaces.is_empty() {
        return Ok(Vec::new());
    }
    let all = getifaddrs().map_err(io::Error::from);
    let all = all.map_err(Error::io("reading the interfaces' MAC addresses"))?;
    let macs: HashMap<String, u64> = all
        .filter_map(|i| {
            let [a, b, c, d, e, f] = i.address?.as_link_addr()?.addr()?;
            let mac = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
            Some((i.interface_name, mac))
        })
        .collect();
    Ok(interfaces.iter().map(|i| macs.get(i).copied()).collect())
}

/// Tells them to the program.
pub(super) fn write(own_macs: &mut [u64], macs: &[Option<u64>]) {
    for (own, mac) in own_macs.iter_mut().zip(macs) {
        *own = mac.unwrap_or(*own);
    }
}
