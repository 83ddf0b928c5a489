//! Why each load of a run is not what production does: said beside its figures, in plain words.
//!
//! What must stay true: every profile that ships has its sentence, in its own job file; an own
//! profile's sentence is its author's to write, and the report says that it is missing.

use super::points::Point;
use super::sections::Section;
use crate::plan::profile;

/// Loads that the lab makes up itself, by the beginning of their names.
const OWN: [(&str, &str); 6] = [
    (
        "fill-",
        "nobody fills a whole drive in one sequential pass; \
         it puts the drive into a known state, no more",
    ),
    (
        "zone-",
        "one stream at one place; production seeks between places, \
         which costs a disk far more than the inner tracks do",
    ),
    (
        "cache-",
        "one kind of write for a whole minute; production mixes guarantees, \
         and flushes of one client wait for the writes of another",
    ),
    ("path-", "the media do nothing: no production load is like this, it is a ceiling"),
    ("sw-", "the best case of parity RAID: whole stripes, one after the other, from few clients"),
    ("sr-", "few streams that never seek"),
];

/// Why the load called `name` differs from production.
pub fn why(name: &str) -> Option<&str> {
    let own = || OWN.into_iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, why)| why);
    profile::production(name).or_else(own)
}

pub fn section(points: &[Point]) -> Section {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for point in points {
        let name = point.workload.name.as_str();
        // `-j4-q32` and what follows belong to the point and not to the profile.
        let load = name.split("-j").next().unwrap_or(name).to_owned();
        let said = why(name)
            .unwrap_or("its author must say: an own profile without a line '; production: ...'");
        let row = vec![load, said.to_owned()];
        if !rows
            .iter()
            .any(|known| known[1] == row[1] && (known[0] == row[0] || why(name).is_some()))
        {
            rows.push(row);
        }
    }
    Section::new(
        "production",
        "Why is none of this production?",
        "load|what production does otherwise",
    )
    .rows(rows)
    .note("A benchmark holds everything still but one thing. That is its use and its limit.")
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn every_load_that_ships_says_why_it_is_not_production() {
        for name in crate::plan::profile::shipped() {
            let load = format!("{name}-j4-q32");
            assert!(why(&load).is_some_and(|why| why.len() > 40), "{name}");
        }
        for own in ["fill-first", "zone-50", "cache-on-flush-write-4k-j1-q1", "sw-256k-j2-q8"] {
            assert!(why(own).is_some(), "{own}");
        }
        assert_eq!(why("database-j1-q32"), None);
        assert_ne!(why("rr-4k-j1-q1"), why("rw-4k-j1-q1"));
    }
}
