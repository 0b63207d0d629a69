//! What the program's tables hold: services, and backends by their indices.

use libbpf_rs::{MapCore, MapFlags};

use super::{BACKENDS, BATCH, Backend, Balancer, SERVICES, Service, ServiceKey, service};
use crate::Error;
use crate::balance_skel::types;
use crate::plain::{bytes, read};

impl Balancer {
    /// The services.
    pub fn services(&self) -> Result<Vec<(ServiceKey, Service)>, Error> {
        let map = &self.skel.maps.services;
        let mut services = Vec::new();
        for key in map.keys() {
            let value = map.lookup(&key, MapFlags::ANY);
            let value = value.map_err(Error::bpf("reading the services"))?;
            let value = value.as_deref().and_then(read::<types::balance_vip>);
            let key = read(&key).as_ref().and_then(ServiceKey::from_kernel);
            services.extend(key.zip(value.map(Service::from_kernel)));
        }
        Ok(services)
    }

    /// Adds a service, or changes it. From here on the packets to its address are the load
    /// balancer's, except neighbour discovery.
    ///
    /// # Errors
    /// When its number is beyond [`SERVICES`], or the kernel does not let us.
    pub fn set_service(&self, key: ServiceKey, service: Service) -> Result<(), Error> {
        check_service(service.number)?;
        self.put_service(&service::mark(key.address), types::balance_vip::default())?;
        self.put_service(&key.to_kernel(), service.to_kernel())
    }

    fn put_service(
        &self,
        key: &types::balance_vip_key,
        vip: types::balance_vip,
    ) -> Result<(), Error> {
        let map = &self.skel.maps.services;
        let put = map.update(bytes(key), bytes(&vip), MapFlags::ANY);
        put.map_err(Error::bpf("writing a service"))
    }

    /// Takes a service out, and with it its ring, if it was the last with its number. That there is
    /// none is no error.
    pub fn remove_service(&self, key: &ServiceKey) -> Result<(), Error> {
        let services = self.services()?;
        let Some((_, gone)) = services.iter().find(|(k, _)| k == key) else {
            return Ok(());
        };
        let doing = "removing a service";
        let map = &self.skel.maps.services;
        map.delete(bytes(&key.to_kernel()))
            .map_err(Error::bpf(doing))?;
        let mut left = services.iter().filter(|(k, _)| k != key);
        if !left.clone().any(|(k, _)| k.address == key.address) {
            map.delete(bytes(&service::mark(key.address)))
                .map_err(Error::bpf(doing))?;
        }
        if !left.any(|(_, s)| s.number == gone.number) && self.ring_map(gone.number)?.is_some() {
            let rings = &self.skel.maps.rings;
            rings
                .delete(&u32::from(gone.number).to_ne_bytes())
                .map_err(Error::bpf(doing))?;
        }
        Ok(())
    }

    /// The backends by their indices, without those that are vacant.
    pub fn backends(&self) -> Result<Vec<(u16, Backend)>, Error> {
        let doing = "reading the backends";
        let all = self
            .skel
            .maps
            .backends
            .lookup_batch(BATCH as u32, MapFlags::ANY, MapFlags::ANY)
            .map_err(Error::bpf(doing))?;
        let backend = |(key, value): (Vec<u8>, Vec<u8>)| {
            let index = u32::from_ne_bytes(key.try_into().ok()?);
            let backend = Backend::from_kernel(&read(&value)?)?;
            Some((index as u16, backend))
        };
        Ok(all.filter_map(backend).collect())
    }

    /// Sets what a backend is; its generation stays what it is.
    ///
    /// # Errors
    /// When the index is 0 or beyond [`BACKENDS`], or the kernel does not let us.
    pub fn set_backend(&self, index: u16, backend: &Backend) -> Result<(), Error> {
        let mut new = backend.to_kernel();
        new.generation = self.kernel_backend(index)?.generation;
        self.put_backend(index, &new)
    }

    /// Makes an index nobody's: the flows that went there go elsewhere, and whoever gets the index
    /// next does not inherit them. Write the ring before, so that no new flows come.
    ///
    /// All else that the index has stays: a packet that is on its way there meanwhile finds a whole
    /// backend.
    ///
    /// # Errors
    /// As [`Self::set_backend`].
    pub fn vacate(&self, index: u16) -> Result<(), Error> {
        let mut gone = self.kernel_backend(index)?;
        gone.state = types::balance_backend_state::BALANCE_BACKEND_VACANT;
        gone.generation = gone.generation.wrapping_add(1);
        self.put_backend(index, &gone)
    }

    fn kernel_backend(&self, index: u16) -> Result<types::balance_backend, Error> {
        if !(1..BACKENDS).contains(&index) {
            return Err(Error::TooMany {
                what: "backends can be there",
                given: index.into(),
                most: usize::from(BACKENDS) - 1,
            });
        }
        let key = u32::from(index).to_ne_bytes();
        let value = self.skel.maps.backends.lookup(&key, MapFlags::ANY);
        let value = value.map_err(Error::bpf("reading a backend"))?;
        Ok(value.as_deref().and_then(read).unwrap_or_default())
    }

    fn put_backend(&self, index: u16, backend: &types::balance_backend) -> Result<(), Error> {
        let key = u32::from(index).to_ne_bytes();
        let put = self
            .skel
            .maps
            .backends
            .update(&key, bytes(backend), MapFlags::ANY);
        put.map_err(Error::bpf("writing a backend"))
    }
}

/// A service's number is within its bounds.
pub(super) fn check_service(number: u16) -> Result<(), Error> {
    if number < SERVICES {
        return Ok(());
    }
    Err(Error::TooMany {
        what: "services can be balanced",
        given: usize::from(number) + 1,
        most: SERVICES.into(),
    })
}
