//! How far a run is: a bar on a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    points: usize,
    done: usize,
    left_s: f64,
}

impl Progress {
    /// Of so many points that take so many seconds together. Nothing is shown if `quiet`.
    pub fn new(points: usize, expected_s: f64, quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(whole(expected_s)), target);
            let style = "{bar:30} {percent:>3} %  {elapsed} gone, {eta} to go  {msg}\n{prefix}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Progress { bar, points, done: 0, left_s: expected_s }
    }

    pub fn begin(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => {
                let (n, of, left) = (self.done + 1, self.points, duration(self.left_s));
                eprintln!("[{n}/{of}] {what}, about {left} to go");
            }
        }
    }

    /// The lines below the bar, if there is a terminal: of a load while it runs.
    pub fn lines(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    /// One more point is to be measured than was planned.
    pub fn more(&mut self, expected_s: f64) {
        self.points += 1;
        self.left_s += expected_s;
        if let Some(bar) = &self.bar {
            bar.inc_length(whole(expected_s));
        }
    }

    /// Something is to be known between two points.
    pub fn say(&self, said: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("  {said}")),
            None => eprintln!("        {said}"),
        }
    }

    /// So many seconds between points are over, or need not be waited for.
    pub fn pass(&mut self, expected_s: f64) {
        self.left_s = (self.left_s - expected_s).max(0.0);
        if let Some(bar) = self.bar.as_ref().filter(|_| expected_s > 0.0) {
            bar.inc(whole(expected_s));
        }
    }

    /// A point that was to take so many seconds is done, or needs not be done; `said` is its
    /// result.
    pub fn end(&mut self, expected_s: f64, said: Option<&str>) {
        self.done += 1;
        self.pass(expected_s);
        if let Some(said) = said {
            self.say(said);
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn whole(seconds: f64) -> u64 {
    crate::units::whole(seconds).max(1)
}

/// Seconds for people: `45 s`, `12 min`, `3 h 20 min`.
pub fn duration(seconds: f64) -> String {
    let seconds = whole(seconds);
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0 | 1) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
