//! The state of NVMe/TCP that survives the process: the subsystem's identity, the number of each
//! namespace, and reservations.
//!
//! What must stay true: one process uses a folder at a time. A file is replaced as a whole, and
//! durable before any answer. A file that cannot be read is a refusal, and never counts as empty.
//! Files: `subsystem` (a UUID), `namespaces` (lines of number and UUID), `UUID.reservations` (the
//! boot's identity, 16 bytes, and what `nvme-protocol` makes of reservations), `lock`.

use ashlar_nvme_tcp::ReservationStore;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// The folder, held by this process.
pub struct StateFolder {
    path: PathBuf,
    boot: [u8; 16],
    numbers: Mutex<BTreeMap<Uuid, u32>>,
    _lock: File,
}

impl StateFolder {
    /// Make or open the folder.
    ///
    /// # Errors
    /// It cannot be made, another process has it, or what is in it makes no sense.
    pub fn open(path: &Path, boot: [u8; 16]) -> io::Result<StateFolder> {
        std::fs::create_dir_all(path)?;
        let lock = File::create(path.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another daemon uses it"),
            TryLockError::Error(error) => error,
        })?;
        let numbers = Mutex::new(read_numbers(&path.join("namespaces"))?);
        Ok(StateFolder { path: path.to_owned(), boot, numbers, _lock: lock })
    }

    /// The UUID of the subsystem: made once.
    ///
    /// # Errors
    /// It can neither be read nor made.
    pub fn subsystem(&self) -> io::Result<Uuid> {
        match std::fs::read_to_string(self.path.join("subsystem")) {
            Ok(text) => text.trim().parse().map_err(|_| nonsense("subsystem: not a UUID")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = Uuid::new_v4();
                self.replace("subsystem", format!("{made}\n").as_bytes())?;
                Ok(made)
            }
            Err(error) => Err(error),
        }
    }

    /// The number of the namespace with this UUID: given once, the lowest that is free.
    ///
    /// # Errors
    /// A new one cannot be stored, or there is none below `most`.
    pub fn number_of(&self, uuid: Uuid, most: u32) -> io::Result<u32> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(&uuid) {
            return Ok(*number);
        }
        let is_free = |number: &u32| !numbers.values().any(|taken| taken == number);
        let number = (1..=most).find(is_free);
        let number = number.ok_or_else(|| io::Error::other("all namespace numbers are taken"))?;
        let mut after = numbers.clone();
        after.insert(uuid, number);
        let line = |(uuid, number): (&Uuid, &u32)| format!("{number} {uuid}\n");
        let text: String = after.iter().map(line).collect();
        self.replace("namespaces", text.as_bytes())?;
        *numbers = after;
        Ok(number)
    }

    fn reservations(nguid: &[u8; 16]) -> String {
        format!("{}.reservations", Uuid::from_bytes(*nguid))
    }

    /// Put a file in place as a whole; durable when this returns.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = File::create(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&new, self.path.join(name))?;
        File::open(&self.path)?.sync_all()
    }
}

impl ReservationStore for StateFolder {
    fn load(&self, nguid: &[u8; 16]) -> io::Result<Option<(Vec<u8>, bool)>> {
        let bytes = match std::fs::read(self.path.join(StateFolder::reservations(nguid))) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (boot, state) = bytes.split_at_checked(16).ok_or_else(|| nonsense("too short"))?;
        Ok(Some((state.to_vec(), boot == self.boot)))
    }

    fn save(&self, nguid: &[u8; 16], bytes: &[u8]) -> io::Result<()> {
        let content = [&self.boot[..], bytes].concat();
        self.replace(&StateFolder::reservations(nguid), &content)
    }
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn read_numbers(path: &Path) -> io::Result<BTreeMap<Uuid, u32>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = BTreeMap::new();
    for line in text.lines() {
        let parsed = line.split_once(' ').and_then(|(number, uuid)| {
            let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
            Some((uuid.parse::<Uuid>().ok()?, number))
        });
        let (uuid, number) =
            parsed.ok_or_else(|| nonsense("namespaces: a line of it makes no sense"))?;
        if numbers.values().any(|taken| *taken == number) || numbers.insert(uuid, number).is_some()
        {
            return Err(nonsense("namespaces: a number or a UUID is there twice"));
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::StateFolder;
    use ashlar_nvme_tcp::ReservationStore;
    use std::path::Path;
    use uuid::Uuid;

    fn open(path: &Path) -> StateFolder {
        StateFolder::open(path, [7; 16]).unwrap()
    }

    #[test]
    fn identity_and_numbers_stay_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
        let state = open(folder.path());
        let subsystem = state.subsystem().unwrap();
        assert_eq!([a, b].map(|uuid| state.number_of(uuid, 9).unwrap()), [1, 2]);
        drop(state);
        let state = open(folder.path());
        assert_eq!(state.subsystem().unwrap(), subsystem);
        assert_eq!([b, c, a].map(|uuid| state.number_of(uuid, 9).unwrap()), [2, 3, 1]);
        assert!(state.number_of(Uuid::from_u128(4), 3).is_err(), "all are taken");
    }

    #[test]
    fn one_process_has_a_folder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path());
        let second = StateFolder::open(folder.path(), [7; 16]).err().expect("it is taken");
        assert!(second.to_string().contains("another daemon"), "{second}");
        drop(first);
        open(folder.path());
    }

    #[test]
    fn reservations_know_whether_the_host_has_been_up() {
        let folder = tempfile::tempdir().unwrap();
        let state = open(folder.path());
        assert_eq!(state.load(&[1; 16]).unwrap(), None);
        state.save(&[1; 16], b"state").unwrap();
        state.save(&[2; 16], b"other").unwrap();
        assert_eq!(state.load(&[1; 16]).unwrap(), Some((b"state".to_vec(), true)));
        drop(state);
        let after_boot = StateFolder::open(folder.path(), [8; 16]).unwrap();
        assert_eq!(after_boot.load(&[1; 16]).unwrap(), Some((b"state".to_vec(), false)));
    }

    #[test]
    fn what_makes_no_sense_is_a_refusal_and_not_nothing() {
        for text in ["1", "0 00000000-0000-0000-0000-000000000001", "x y", "1 1\n1 2"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("namespaces"), text).unwrap();
            assert!(StateFolder::open(folder.path(), [7; 16]).is_err(), "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let state = open(folder.path());
        std::fs::write(folder.path().join("subsystem"), "nonsense").unwrap();
        assert!(state.subsystem().is_err());
        let name = format!("{}.reservations", Uuid::from_bytes([1; 16]));
        std::fs::write(folder.path().join(name), "short").unwrap();
        assert!(state.load(&[1; 16]).is_err());
    }
}
