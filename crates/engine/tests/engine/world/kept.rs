//! Memory that outlives a killed process, for engines of tests; it can fail.
//!
//! What must stay true: it is the memory of the simulated world: a power cut takes it away.

use super::engine_with;
use ashlar_engine::{Engine, KeptMemory, KeptPlace};
use ashlar_ring::Handle;
use ashlar_sim::{SimMemory, SimOpener};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory, and what is wrong with it.
#[derive(Clone)]
pub struct TestMemory {
    pub memory: SimMemory,
    /// Nothing can be written to places that are there.
    pub fails: Arc<AtomicBool>,
    /// There is no memory for another place.
    pub is_full: Arc<AtomicBool>,
}

impl TestMemory {
    pub fn new(memory: SimMemory) -> TestMemory {
        TestMemory { memory, fails: Arc::default(), is_full: Arc::default() }
    }

    /// An engine of two workers with this memory.
    pub fn engine(&self, opener: SimOpener, handle: &Handle) -> Engine {
        engine_with(opener, handle, (2, Some(Arc::new(self.clone()))))
    }

    /// The only place for a map that there is.
    pub fn only_name(&self) -> String {
        let mut names = self.memory.names();
        names.retain(|name| !name.ends_with(".drives"));
        assert_eq!(names.len(), 1, "{names:?}");
        names.remove(0)
    }

    /// What lies in it.
    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        let length = self.memory.bytes(name).expect("it is there");
        let mut bytes = vec![0; usize::try_from(length).expect("small")];
        assert!(self.memory.read(name, 0, &mut bytes));
        bytes
    }

    /// A place of that name holds this from now on.
    pub fn set(&self, name: &str, bytes: &[u8]) {
        self.memory.make(name, u64::try_from(bytes.len()).expect("small"));
        assert!(self.memory.write(name, 0, bytes));
    }

    fn place(&self, name: &str) -> Arc<dyn KeptPlace> {
        Arc::new(Place { memory: self.clone(), name: name.to_owned() })
    }
}

struct Place {
    memory: TestMemory,
    name: String,
}

fn done(is_done: bool) -> io::Result<()> {
    is_done.then_some(()).ok_or_else(|| io::Error::other("a place in memory"))
}

impl KeptMemory for TestMemory {
    fn boot(&self) -> [u8; 16] {
        u128::from(self.memory.boot()).to_be_bytes()
    }

    fn make(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn KeptPlace>> {
        done(!self.is_full.load(Ordering::Relaxed))?;
        self.memory.make(name, bytes);
        Ok(self.place(name))
    }

    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn KeptPlace>>> {
        Ok(self.memory.bytes(name).map(|_| self.place(name)))
    }

    fn names(&self) -> Vec<String> {
        self.memory.names()
    }

    fn forget(&self, name: &str) {
        self.memory.forget(name);
    }
}

impl KeptPlace for Place {
    fn bytes(&self) -> io::Result<u64> {
        self.memory.memory.bytes(&self.name).ok_or_else(|| io::Error::other("gone"))
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        done(self.memory.memory.read(&self.name, offset, target))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        done(!self.memory.fails.load(Ordering::Relaxed))?;
        done(self.memory.memory.write(&self.name, offset, bytes))
    }

    fn forget(&self) {
        self.memory.memory.forget(&self.name);
    }
}
