//! How many connections one address has.
//!
//! What must stay true: a seat is given back when it is dropped, and of an address without seats
//! nothing is kept.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections by the address they came from.
#[derive(Default)]
pub struct Seats(Mutex<BTreeMap<IpAddr, u64>>);

/// One connection of an address; given back when dropped.
pub struct Seat {
    seats: Arc<Seats>,
    peer: IpAddr,
}

impl Seats {
    /// One more connection of `peer`, unless it has `most` of them.
    pub fn take(self: &Arc<Seats>, peer: IpAddr, most: u64) -> Option<Seat> {
        let mut taken = self.taken();
        let own = taken.entry(peer).or_insert(0);
        if *own >= most {
            return None;
        }
        *own += 1;
        Some(Seat { seats: Arc::clone(self), peer })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<IpAddr, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(own) = taken.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

/// The address that a connection came from; `None` for Unix sockets.
pub fn peer_of(socket: &OwnedFd) -> Option<IpAddr> {
    let address = rustix::net::getpeername(socket).ok()??;
    SocketAddr::try_from(address).ok().map(|address| address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::Seats;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    #[test]
    fn one_address_has_so_many_seats_and_gets_them_back() {
        let all = Arc::new(Seats::default());
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let seats = [all.take(one, 2), all.take(one, 2)];
        assert!(seats.iter().all(Option::is_some));
        assert!(all.take(one, 2).is_none());
        assert!(all.take(other, 2).is_some());
        drop(seats);
        assert!(all.take(one, 2).is_some());
        assert!(all.taken().is_empty(), "nobody sits, nothing is kept");
    }
}
