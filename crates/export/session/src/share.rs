//! The share of a worker's buffers that the connections of one address may hold together.
//!
//! What must stay true: of each size, half of the buffers are left to others, whatever one address
//! does with all its connections: asks for data and does not send it, or does not take answers. A
//! share is one worker's, so it is found on the worker's thread only. Not here: how many
//! connections there may be (`seats`), and what one of them may hold (`credit`).

use ashlar_ring::local::{Permit, Semaphore};
use ashlar_units::to_u64;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

thread_local! {
    static SHARES: RefCell<BTreeMap<IpAddr, Weak<Share>>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// What the connections of one address may hold on this worker.
pub struct Share {
    /// By size of buffers in bytes, rising.
    sizes: Vec<(u64, Semaphore)>,
}

impl Share {
    /// That of `peer` on this worker, which has so many buffers of each size in bytes.
    pub fn of(peer: IpAddr, buffers: &[(usize, usize)]) -> Rc<Share> {
        SHARES.with_borrow_mut(|all| {
            all.retain(|_, share| share.strong_count() > 0);
            if let Some(known) = all.get(&peer).and_then(Weak::upgrade) {
                return known;
            }
            let half = |(bytes, count): &(usize, usize)| {
                (to_u64(*bytes), Semaphore::new((count >> 1).max(1)))
            };
            let share = Rc::new(Share { sizes: buffers.iter().map(half).collect() });
            all.insert(peer, Rc::downgrade(&share));
            share
        })
    }

    /// Wait until the address may hold one more buffer for so many bytes. Nothing needs none.
    pub(crate) async fn take(&self, bytes: u64) -> Option<Permit> {
        let fits = |(size, _): &&(u64, Semaphore)| bytes <= *size;
        let (_, free) = self.sizes.iter().find(fits).or(self.sizes.last()).filter(|_| bytes > 0)?;
        Some(free.acquire().await)
    }
}

#[cfg(test)]
mod tests {
    use super::Share;
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_address_has_half_of_each_size_over_all_its_connections() {
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let buffers = [(4096, 8), (1 << 20, 4)];
        let [first, second] = [one, one].map(|peer| Share::of(peer, &buffers));
        assert!(Rc::ptr_eq(&first, &second));
        let held = [now(first.take(1 << 20)), now(second.take(8192))];
        assert!(held.iter().all(Option::is_some));
        assert!(now(first.take(5000)).is_none(), "half of the large ones");
        assert!(now(first.take(4096)).is_some() && now(first.take(0)).is_some());
        assert!(now(Share::of(other, &buffers).take(1 << 20)).is_some());
        drop(held);
        assert!(now(second.take(1 << 20)).is_some());
        drop((first, second));
        // Nobody is connected, nothing is kept.
        assert!(now(Share::of(one, &[(4096, 2)]).take(1 << 20)).is_some());
    }
}
