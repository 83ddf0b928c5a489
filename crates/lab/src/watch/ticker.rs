//! Looks at CPU time and drives again and again while a load runs, so that afterwards the time that
//! the load itself measured can be cut out: without its start, its ramp and its end.
//!
//! What must stay true: CPU time and I/Os of a figure are of the same time; memory stays small
//! however long the load runs.

use super::second::Live;
use super::strangers::{Look, Moved, Own};
use crate::evidence::log::unix_now_s;
use crate::evidence::process::monotonic;
use crate::fio::measure::Figures;
use crate::host_cpu::HostCpu;
use crate::meter::Reading;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between looks at first; doubled when there are too many of them.
const EVERY: Duration = Duration::from_millis(50);
const KEPT: usize = 512;
/// Time between looks at who has the devices open.
const STRANGERS_EVERY: Duration = Duration::from_millis(500);
/// Time between looks that are shown and kept as a series, seconds; more if looks are rarer.
const SHOWN_S: f64 = 1.0;
/// Part of the measured time that is left out at both ends: when exactly it began and ended, only
/// the load generator knows.
const TRIM: f64 = 0.05;

#[derive(Clone, Debug)]
pub struct Tick {
    pub unix_s: f64,
    pub cpu: HostCpu,
    pub drives: Reading,
}

impl Tick {
    /// Look now; `None` if the kernel does not tell.
    pub fn now() -> Option<Tick> {
        Some(Tick { unix_s: unix_now_s(), cpu: HostCpu::now().ok()?, drives: Reading::now() })
    }
}

#[derive(Debug)]
pub struct Ticker {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<Tick>, Moved)>,
    own: Own,
    before: Look,
}

#[derive(Debug)]
pub struct Seen {
    /// All looks that were kept, in order; two at least, if the kernel tells anything.
    pub ticks: Vec<Tick>,
    pub moved: Moved,
    /// CPU seconds of strangers over all of the time, and whose.
    pub strangers: (f64, Vec<(String, f64)>),
}

impl Ticker {
    /// Begin; `devices` are what is measured, and `live` is told each second.
    pub fn begin(own: &Own, devices: &[PathBuf], live: Live) -> Ticker {
        let is_over = Arc::new(AtomicBool::new(false));
        let (flag, moved, mine) = (Arc::clone(&is_over), Moved::on(devices), own.clone());
        let before = Look::now(own);
        let thread = std::thread::spawn(move || look_on(&flag, moved, &mine, &live));
        Ticker { is_over, thread, own: own.clone(), before }
    }

    pub fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let (ticks, mut moved) = self.thread.join().unwrap_or_default();
        let after = Look::now(&self.own);
        moved.look(&after);
        Seen { ticks, moved, strangers: self.before.until(&after) }
    }
}

fn look_on(is_over: &AtomicBool, mut moved: Moved, own: &Own, live: &Live) -> (Vec<Tick>, Moved) {
    let (mut ticks, mut every) = (Vec::new(), EVERY);
    let mut shown: Option<Tick> = None;
    let mut next_strangers = Duration::ZERO;
    loop {
        let ends = is_over.load(Ordering::Relaxed);
        if let Some(tick) = Tick::now() {
            let before = shown.get_or_insert_with(|| tick.clone());
            if tick.unix_s - before.unix_s >= SHOWN_S {
                live.second(before, &tick);
                *before = tick.clone();
            }
            ticks.push(tick);
        }
        if ticks.len() > KEPT {
            ticks = ticks.into_iter().step_by(2).collect();
            every *= 2;
        }
        if ends {
            live.end();
            return (ticks, moved);
        }
        if monotonic() >= next_strangers {
            moved.look(&Look::now(own));
            next_strangers = monotonic() + STRANGERS_EVERY;
        }
        std::thread::park_timeout(every);
    }
}

impl Seen {
    pub fn whole_s(&self) -> f64 {
        let ends = self.ticks.first().zip(self.ticks.last());
        ends.map_or(0.0, |(first, last)| last.unix_s - first.unix_s)
    }

    /// The looks between which `client` measured; the first and the last one, if it does not say
    /// when that was, or was too quick.
    pub fn measured(&self, client: &Figures) -> Option<(&Tick, &Tick)> {
        let whole = self.ticks.first().zip(self.ticks.last())?;
        let trim = client.measured_s * TRIM;
        let (to, from) =
            (client.ended_unix_s - trim, client.ended_unix_s - client.measured_s + trim);
        let mut inside = self.ticks.iter().filter(|tick| (from..=to).contains(&tick.unix_s));
        let cut = inside.next().zip(inside.next_back()).filter(|(first, last)| {
            let enough_s = client.measured_s / 2.0;
            enough_s > 0.0 && last.unix_s - first.unix_s >= enough_s
        });
        Some(cut.unwrap_or(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::{Look, Moved, Seen, Tick};
    use crate::fio::measure::Figures;
    use crate::host_cpu::HostCpu;
    use crate::meter::Reading;
    use std::time::Duration;

    /// A load of one second that took one and a half: the machine was busy while it began and
    /// ended, and half busy while it measured.
    #[test]
    fn cpu_time_is_that_of_the_time_in_which_the_ios_were_counted() {
        let tick = |at: u32| {
            let (at_s, millis) = (f64::from(at) / 1000.0, u64::from(at));
            // Busy for 400 ms, half busy for 1,000, busy for 100; hundredths of a second.
            let busy = at.min(400) + at.saturating_sub(400).min(1000) / 2 + at.saturating_sub(1400);
            let text = format!("cpu0 {} 0 0 {}\n", busy / 10, (at - busy) / 10);
            let cpu = HostCpu::parsed(&text, Duration::from_millis(millis));
            Tick { unix_s: 5000.0 + at_s, cpu, drives: Reading::default() }
        };
        let ticks = (0..=15).map(|at| tick(at * 100)).collect();
        let strangers = Look::default().until(&Look::default());
        let seen = Seen { ticks, moved: Moved::default(), strangers };
        let busy = |client: &Figures| {
            let (from, to) = seen.measured(client).expect("looked");
            let cost = from.cpu.until(&to.cpu);
            cost.busy_s / cost.wall_s
        };
        let client = Figures { measured_s: 1.0, ended_unix_s: 5001.4, ..Figures::default() };
        assert!((busy(&client) - 0.5).abs() < 0.01, "{}", busy(&client));
        assert!(busy(&Figures::default()) > 0.6, "nothing is cut out of what nobody timed");
    }
}
