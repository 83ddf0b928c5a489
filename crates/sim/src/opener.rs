//! How the program under test finds the world's disks: by name, exclusively.
//!
//! What must stay true: at most one exclusive opening of a disk by one name at a time. It ends when
//! it and all its devices are dropped and none of their commands is under way any more, or with its
//! host.

use std::sync::Arc;

use ashlar_device::{Access, OpenRefusal, Opened, Opener};
use ashlar_units::to_u64;

use crate::device::{Hold, SimOpened};
use crate::world::World;

/// Opens the disks of a [`SimWorld`](crate::SimWorld) by their names. Survives the world's stops.
#[derive(Clone)]
pub struct SimOpener(pub(crate) Arc<World>);

impl Opener for SimOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let mut state = self.0.lock();
        let Some(at) = state.disk_at(path) else {
            return Err(OpenRefusal::new(path, "no such simulated disk"));
        };
        state.openings += 1;
        let opening = state.openings;
        let disk = &mut state.disks[at];
        if disk.faults.is_absent {
            return Err(OpenRefusal::new(path, "the simulated disk has vanished"));
        }
        if access == Access::Exclusive {
            if disk.owed > 0 {
                let reason =
                    format!("it did not answer in time and still has {} commands", disk.owed);
                return Err(OpenRefusal::new(path, reason));
            }
            if disk.holders.contains_key(path) {
                return Err(OpenRefusal::new(path, "in use: it is open exclusively already"));
            }
            disk.holders.insert(path.to_owned(), opening);
        }
        let mut facts = disk.options.facts(&disk.name);
        facts.appearance = Some(disk.faults.appearance);
        facts.path = path.to_owned();
        let number = disk.other_paths.iter().position(|other| other == path);
        facts.exclusion = Some([to_u64(at), number.map_or(0, |number| to_u64(number) + 1)]);
        let (world, path) = (Arc::clone(&self.0), path.to_owned());
        let hold = (access == Access::Exclusive)
            .then(|| Arc::new(Hold { world: Arc::clone(&world), at, path, opening }));
        Ok(Arc::new(SimOpened { world, at, hold, facts }))
    }
}
