//! Prints the table of bad runs, strategy by strategy.
//!
//! `write_hole [N [STRATEGY]]`: N seeds a cell (20000 if not said), for one crash and for hard
//! universes; of all strategies, or of one, by its row number from 0. `write_hole exhaustive`:
//! every crash state of small rows. `write_hole story STRATEGY LOSSES TORN HARD SEED`: one seed
//! line by line; LOSSES 0 to 3 in the order of the columns, TORN and HARD 0 or 1.

use ashlar_model::exhaustive::{Space, exhaustive};
use ashlar_model::run::{Conditions, Losses, story, tally};
use ashlar_model::strategy::{ALL, Strategy};
use std::fmt::Write;

const HEADS: &str = "| strategy | no loss, atomic | no loss, torn | m lost at crash, atomic \
| m lost at crash, torn | any split, atomic | any split, torn | lost before only, atomic \
| lost before only, torn |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|";

fn table(strategies: &[&dyn Strategy], runs: u64, hard: bool) {
    println!("\nbad runs of {runs} (of these with an untouched block wrong), {}\n", name(hard));
    println!("{HEADS}");
    let mut seeds = String::new();
    for &strategy in strategies {
        print!("| {} |", strategy.name());
        let _ = write!(seeds, "\n{}:", strategy.name());
        for conditions in Conditions::columns(hard) {
            let tally = tally(strategy, conditions, runs);
            print!(" {} ({}) |", tally.bad, tally.untouched);
            let seed = tally.first_bad.map_or("-".to_owned(), |seed| seed.to_string());
            let _ = write!(seeds, " {seed}");
        }
        println!();
    }
    println!("\nfirst bad seed of each cell{seeds}");
}

fn name(hard: bool) -> &'static str {
    if hard { "two crashes, restarts crash too" } else { "one crash" }
}

fn every_state() {
    println!("| strategy | blocks | restarts | crash states | bad | untouched wrong |");
    println!("|---|---|---|---:|---:|---:|");
    for strategy in ALL {
        for (torn, deep) in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut states, mut bad, mut untouched) = (0, 0, 0);
            let m_max = strategy.parity_max();
            for (k, m) in (2..=3).flat_map(|k| (1..=m_max).map(move |m| (k, m))) {
                if deep && k + m > 5 {
                    continue;
                }
                let count = exhaustive(strategy, Space { k, m, torn, deep });
                states += count.states;
                bad += count.bad;
                untouched += count.untouched;
            }
            let blocks = if torn { "tear" } else { "atomic" };
            let crash = if deep { "crash too" } else { "whole" };
            println!(
                "| {} | {blocks} | {crash} | {states} | {bad} | {untouched} |",
                strategy.name()
            );
        }
    }
}

fn one_seed(words: &[String]) -> Option<String> {
    let number = |at: usize| words.get(at)?.parse::<usize>().ok();
    let strategy = *ALL.get(number(0)?)?;
    let losses = *Losses::ALL.get(number(1)?)?;
    let conditions = Conditions { losses, torn: number(2)? == 1, hard: number(3)? == 1 };
    Some(story(strategy, conditions, words.get(4)?.parse().ok()?))
}

fn tables(words: &[String]) -> Option<()> {
    let runs = words.first().map_or(Some(20_000), |runs| runs.parse().ok())?;
    let only = words.get(1).map(|row| row.parse::<usize>().ok().and_then(|row| ALL.get(row..=row)));
    let strategies = only.unwrap_or(Some(&ALL))?;
    [false, true].into_iter().for_each(|hard| table(strategies, runs, hard));
    Some(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("exhaustive") => {
            every_state();
            Some(())
        }
        Some("story") => one_seed(&words[1..]).map(|story| println!("{story}")),
        _ => tables(&words),
    };
    if done.is_none() {
        eprintln!(
            "say: [N [STRATEGY]], exhaustive, or story STRATEGY LOSSES TORN HARD SEED, in numbers"
        );
        std::process::exit(2);
    }
}
