//! Memory that outlives a killed program, as the engine asks for it.
//!
//! What must stay true: it is the memory of the simulated world, with its boots. A boot has an id
//! that no other one has.

use crate::abuse::Abuses;
use crate::drive_slot::Rest;
use crate::life::engine;
use ashlar_engine::{AssembleSpec, KeptMemory, KeptPlace};
use ashlar_ondisk::bitmap::WORDS_PER_PAGE;
use ashlar_ondisk::{BitmapKind, PageIdentity};
use ashlar_sim::{Random, SimMemory, Stop};
use ashlar_units::{BLOCK_BYTES_USIZE, to_u64, to_usize};
use std::io;
use std::sync::Arc;

/// The memory of the world, for an engine.
pub(crate) fn of(memory: SimMemory) -> Arc<dyn KeptMemory> {
    Arc::new(Adapter(memory))
}

/// The id of a boot.
pub(crate) fn boot_id(boot: u64) -> [u8; 16] {
    (0xB007_u128 << 64 | u128::from(boot)).to_be_bytes()
}

struct Adapter(SimMemory);

struct Place {
    memory: SimMemory,
    name: String,
}

fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Adapter {
    fn place(&self, name: &str) -> Arc<dyn KeptPlace> {
        Arc::new(Place { memory: self.0.clone(), name: name.to_owned() })
    }
}

impl KeptMemory for Adapter {
    fn boot(&self) -> [u8; 16] {
        boot_id(self.0.boot())
    }

    fn make(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn KeptPlace>> {
        self.0.make(name, bytes);
        Ok(self.place(name))
    }

    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn KeptPlace>>> {
        Ok(self.0.bytes(name).map(|_| self.place(name)))
    }

    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    fn forget(&self, name: &str) {
        self.0.forget(name);
    }
}

impl KeptPlace for Place {
    fn bytes(&self) -> io::Result<u64> {
        self.memory.bytes(&self.name).ok_or_else(gone)
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        self.memory.read(&self.name, offset, target).then_some(()).ok_or_else(gone)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write(&self.name, offset, bytes).then_some(()).ok_or_else(gone)
    }

    fn forget(&self) {
        self.memory.forget(&self.name);
    }
}

/// What may be wrong with a kept map that should be there.
#[derive(Clone, Copy, Debug)]
enum Spoiled {
    Missing,
    CutShort,
    /// Half of a page is of another version.
    Torn,
    /// Nothing was ever put there.
    Blank,
    /// It is the whole map of an earlier start.
    Stale,
    /// It is the whole map of another array.
    Foreign,
}

const SPOILED: [Spoiled; 6] = [
    Spoiled::Missing,
    Spoiled::CutShort,
    Spoiled::Torn,
    Spoiled::Blank,
    Spoiled::Stale,
    Spoiled::Foreign,
];

/// A kept map of an earlier start.
#[derive(Default)]
pub(crate) struct OlderMap(Option<Vec<u8>>);

impl Abuses<'_> {
    /// The program was killed and the machine still runs. If its kept map is there, sometimes it is
    /// spoiled: then nothing starts and nothing is changed. Undone afterwards.
    pub(crate) fn spoil_kept_map(&mut self, random: &mut Random, rest: &Rest, old: &mut OlderMap) {
        let newest = &rest.newest;
        let Some(memory) = self.stage.memory() else { return };
        if newest.kept_map_boot.map(|boot| boot.into_bytes()) != Some(boot_id(memory.boot())) {
            return;
        }
        let name = format!("{}.{}", newest.array_uuid, newest.incarnation);
        let Some(bytes) = memory.bytes(&name) else {
            self.stage.fail(format!("a killed program left no kept map {name}"));
        };
        let mut own = vec![0; to_usize(bytes)];
        memory.read(&name, 0, &mut own);
        let older = old.0.replace(own.clone()).filter(|older| *older != own);
        let spoiled = SPOILED[to_usize(random.below(to_u64(SPOILED.len())))];
        let new = match (spoiled, older) {
            (Spoiled::Missing, _) => None,
            (Spoiled::CutShort, _) => Some(own[..own.len() / 2].to_vec()),
            (Spoiled::Torn, _) => {
                own[100..2048].iter_mut().for_each(|byte| *byte ^= 0x40);
                Some(own)
            }
            (Spoiled::Blank, _) => Some(vec![0; own.len()]),
            (Spoiled::Stale, Some(older)) => Some(older),
            (Spoiled::Stale, None) => return,
            (Spoiled::Foreign, _) => Some(foreign(own.len() / BLOCK_BYTES_USIZE)),
        };
        let before = self.keep();
        memory.forget(&name);
        if let Some(new) = new {
            memory.make(&name, to_u64(new.len()));
            memory.write(&name, 0, &new);
        }
        self.drive_slots.make_room();
        self.drive_slots.go_on();
        self.stage.say(|| format!("abuse: the kept map is {spoiled:?}"));
        self.must_miss_its_map();
        self.world.call_off();
        self.world.stop(Stop::Kill);
        self.stage.say(|| "abuse: the kept map is as it was".to_owned());
        self.put_back(before);
    }

    fn must_miss_its_map(&mut self) {
        let changes = |abuses: &Self| -> Vec<u64> {
            abuses.drive_slots.all.iter().map(|drive_slot| drive_slot.disk.changes()).collect()
        };
        let before = changes(self);
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let devices = self.drive_slots.names();
        let refused = self.world.run(async move |handle| {
            let engine = engine(opener, &handle, &stage);
            let spec = AssembleSpec { devices, ..AssembleSpec::default() };
            engine.assemble(spec).await.err()
        });
        match refused.done() {
            None => self.stage.fail("an array started without the kept map that it needs"),
            Some(refusal) if refusal.code == "array.kept_map_missing" => {
                self.stage.mark("abuse.kept_map_missed");
            }
            Some(_) => self.stage.mark("abuse.kept_map_missed_and_more"),
        }
        if changes(self) != before {
            self.stage.fail("a start that missed its kept map changed a device");
        }
    }
}

/// The map of an array that does not exist, in which every stripe is unwritten.
fn foreign(pages: usize) -> Vec<u8> {
    let page = |page: usize| {
        let page = u32::try_from(page).expect("few pages");
        let kind = BitmapKind::WrittenMap;
        PageIdentity { kind, owner_tag: 0x5EED, page }.encode(9, &[0; WORDS_PER_PAGE])
    };
    (0..pages).flat_map(page).collect()
}
