//! Services' rings: which backend each slot has.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::tables::check_service;
use super::{BATCH, Balancer, SLOTS};
use crate::Error;

/// An empty ring that is no service's yet.
pub struct Ring(MapHandle);

impl Ring {
    /// Makes one.
    pub fn new() -> Result<Self, Error> {
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        MapHandle::create(MapType::Array, Some("bw_ring"), 4, 4, SLOTS as u32, &opts)
            .map(Self)
            .map_err(Error::bpf("making a ring"))
    }
}

impl Balancer {
    pub(super) fn ring_map(&self, service: u16) -> Result<Option<MapHandle>, Error> {
        let doing = "opening a ring";
        let key = u32::from(service).to_ne_bytes();
        let id = self.skel.maps.rings.lookup(&key, MapFlags::ANY);
        let id = id.map_err(Error::bpf(doing))?;
        let Some(id) = id.as_deref().and_then(read_u32) else {
            return Ok(None);
        };
        MapHandle::from_map_id(id)
            .map(Some)
            .map_err(Error::bpf(doing))
    }

    /// Which backend each slot of a service's ring has; all 0 if there is no ring.
    pub fn ring(&self, service: u16) -> Result<Vec<u16>, Error> {
        let Some(map) = self.ring_map(service)? else {
            return Ok(vec![0; SLOTS]);
        };
        let slots = map
            .lookup_batch(BATCH as u32, MapFlags::ANY, MapFlags::ANY)
            .map_err(Error::bpf("reading a ring"))?;
        let mut ring = vec![0; SLOTS];
        for (key, value) in slots {
            let slot = read_u32(&key).and_then(|slot| ring.get_mut(slot as usize));
            if let (Some(slot), Some(index)) = (slot, read_u32(&value)) {
                *slot = index as u16;
            }
        }
        Ok(ring)
    }

    /// Gives a service this ring, in place of any that it has.
    ///
    /// # Errors
    /// When the number is beyond its bounds, or the kernel does not let us.
    pub fn set_ring(&self, service: u16, ring: &Ring) -> Result<(), Error> {
        check_service(service)?;
        let key = u32::from(service).to_ne_bytes();
        let fd = ring.0.as_fd().as_raw_fd().to_ne_bytes();
        let put = self.skel.maps.rings.update(&key, &fd, MapFlags::ANY);
        put.map_err(Error::bpf("writing a ring"))
    }

    /// Gives slots of a service's ring to backends. Packets meanwhile see each slot as it was or as
    /// it becomes; of a service that had no ring, the whole ring at once.
    ///
    /// # Errors
    /// When a slot or number is beyond its bounds, or the kernel does not let us.
    pub fn write_ring(&self, service: u16, delta: &[(u32, u16)]) -> Result<(), Error> {
        check_service(service)?;
        let known = self.ring_map(service)?;
        let fresh = known.is_none();
        let ring = known.map_or_else(Ring::new, |map| Ok(Ring(map)))?;
        let doing = "writing a ring";
        for part in delta.chunks(BATCH) {
            let keys: Vec<u8> = part.iter().flat_map(|(s, _)| s.to_ne_bytes()).collect();
            let values: Vec<u8> = part
                .iter()
                .flat_map(|&(_, b)| u32::from(b).to_ne_bytes())
                .collect();
            ring.0
                .update_batch(
                    &keys,
                    &values,
                    part.len() as u32,
                    MapFlags::ANY,
                    MapFlags::ANY,
                )
                .map_err(Error::bpf(doing))?;
        }
        if fresh {
            self.set_ring(service, &ring)?;
        }
        Ok(())
    }
}

fn read_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}
