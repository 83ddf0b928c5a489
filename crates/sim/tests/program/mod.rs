//! What programs in the world under test are made of.

use std::rc::Rc;

use ashlar_device::{Access, Device, Opener, Outcome, ReadFailed, flush, read, write};
use ashlar_iobuf::BufMut;
use ashlar_ring::{Completions, Handle};
use ashlar_sim::SimOpener;

/// A disk opened by a program.
pub struct Open {
    pub device: Rc<dyn Device>,
    pub supply: Completions<Outcome>,
}

impl Open {
    pub fn new(opener: &SimOpener, name: &str, handle: &Handle) -> Open {
        let opened = opener.open(name, Access::Exclusive).expect("a free disk");
        Open { device: opened.attach(handle), supply: Completions::new() }
    }

    pub async fn write(
        &self,
        offset: u64,
        bytes: usize,
        fill: u8,
    ) -> Result<(), ashlar_device::Fault> {
        write(&*self.device, &self.supply, offset, filled(bytes, fill).freeze()).await
    }

    pub async fn read(&self, offset: u64, bytes: usize) -> Result<BufMut, ReadFailed> {
        read(&*self.device, &self.supply, offset, BufMut::zeroed(bytes)).await
    }

    pub async fn flush(&self) {
        flush(&*self.device, &self.supply).await.expect("flushed");
    }
}

pub fn filled(bytes: usize, fill: u8) -> BufMut {
    let mut buffer = BufMut::zeroed(bytes);
    buffer.fill(fill);
    buffer
}
