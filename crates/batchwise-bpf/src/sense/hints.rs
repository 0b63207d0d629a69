//! Applications' hints: what the exchange advertises in place of TCP's queues where an application
//! itself counts its requests (§3.3).

use batchwise_core::sense::queue::QueueState;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::extension::{Extension, Loaded};
use crate::Error;
use crate::plain::bytes;
use crate::sense_skel::{OpenSenseSkel, types};

/// Lets hints be advertised; with [`super::Exchange`].
#[derive(Clone, Copy, Debug)]
pub struct Hints;

/// Takes the hints that are advertised.
#[derive(Debug)]
pub struct Advertiser {
    hints: MapHandle,
}

impl Extension for Hints {
    type Attached = Advertiser;

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        if let Some(ro) = open.maps.rodata_data.as_deref_mut() {
            ro.hinting = true;
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Advertiser, Error> {
        let hints = MapHandle::try_from(&loaded.skel.maps.hints);
        Ok(Advertiser {
            hints: hints.map_err(Error::bpf("opening the map of hints"))?,
        })
    }
}

impl Advertiser {
    /// Of so many connections hints can be advertised at a time.
    pub const MOST: usize = 65_536;

    /// A connection's requests as its application counts them; `None` when it no longer does.
    pub fn advertise(&self, cookie: u64, queue: Option<&QueueState>) -> Result<(), Error> {
        let key = cookie.to_ne_bytes();
        let done = match queue {
            None => match self.hints.delete(&key) {
                Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                done => done,
            },
            Some(q) => {
                let value = types::sense_queue {
                    time: q.time,
                    integral: q.integral,
                    total: q.total,
                    size: q.size,
                    reserved: 0,
                };
                self.hints.update(&key, bytes(&value), MapFlags::ANY)
            }
        };
        done.map_err(Error::bpf("writing a hint"))
    }
}
