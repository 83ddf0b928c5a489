//! How boards name their memory slots (`models/boards.toml`), and where a slot is by its name.
//!
//! Some makers only number the slots of a processor; which slots share a channel follows from how
//! many there are, and only some of these counts leave no doubt.
//!
//! What must stay true: a name that no row matches has no place; it is not guessed.

use regex::Regex;
use serde::Deserialize;
use std::sync::LazyLock;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub socket: Option<u64>,
    /// Channel: `A`, `2`, or `1.2` for channel 2 of the second memory controller.
    pub channel: Option<String>,
    /// Number of the slot at its socket, where the board counts slots instead of channels.
    pub number: Option<u64>,
}

#[derive(Deserialize)]
struct Board {
    bank: Option<String>,
    slot: Option<String>,
    #[cfg(test)]
    #[serde(default)]
    seen: Vec<[String; 4]>,
}

#[derive(Deserialize)]
struct Table {
    board: Vec<Board>,
}

static BOARDS: LazyLock<Vec<Board>> = LazyLock::new(|| {
    let read = toml::from_str::<Table>(include_str!("../../../../models/boards.toml"));
    read.map_or_else(|_| Vec::new(), |table| table.board)
});

/// The rows, ready to be asked: whether they are about the bank, and the expression.
static ROWS: LazyLock<Vec<(bool, Regex)>> = LazyLock::new(|| {
    let row = |board: &Board| {
        let text = board.bank.as_ref().or(board.slot.as_ref())?;
        Some((board.bank.is_some(), Regex::new(text).ok()?))
    };
    BOARDS.iter().filter_map(row).collect()
});

pub fn place(bank: &str, locator: &str) -> Place {
    let (bank, locator) = (bank.trim().to_ascii_uppercase(), locator.trim().to_ascii_uppercase());
    let mut place = Place::default();
    for (is_of_bank, expression) in ROWS.iter() {
        let name = if *is_of_bank { &bank } else { &locator };
        let Some(found) = expression.captures(name) else { continue };
        let text = |group: &str| found.name(group).map(|it| it.as_str().to_owned());
        let number = |group: &str| text(group)?.parse::<u64>().ok();
        let letter = text("l").and_then(|it| it.bytes().next()).map(|it| u64::from(it - b'A'));
        let channel = text("c").map(|channel| match text("m") {
            Some(controller) => format!("{controller}.{channel}"),
            None => channel,
        });
        place.socket = place.socket.or(number("s")).or(letter);
        place.channel = place.channel.or(channel);
        place.number = place.number.or(number("n"));
    }
    place
}

/// The channel of slot `number`, counted from 1, of `slots` at a socket, if their count leaves no
/// doubt: `is_interleaved` says that the first slots of all channels come before the second ones
/// (Dell), and not both slots of a channel one after the other (HPE).
pub fn numbered(number: u64, slots: u64, kind: &str, is_interleaved: bool) -> Option<String> {
    let channels = match (slots, kind) {
        // 12 slots of DDR4 are six channels of two in some servers and four of three in others.
        (16, "DDR4" | "DDR5") => 8,
        (12, "DDR5") => 12,
        _ => return None,
    };
    let index = number.checked_sub(1).filter(|it| *it < slots)?;
    let channel = if is_interleaved { index % channels } else { index / (slots / channels) };
    Some(channel.to_string())
}

#[cfg(test)]
mod tests {
    use super::{BOARDS, ROWS, numbered, place};

    #[test]
    fn every_row_is_an_expression_and_slots_of_real_boards_have_their_places() {
        assert_eq!((ROWS.len(), BOARDS.len()), (15, 15));
        for board in BOARDS.iter() {
            for [bank, locator, socket, channel] in &board.seen {
                let place = place(bank, locator);
                let found = (place.socket, place.channel.as_deref());
                let wanted = (socket.parse().ok(), Some(channel.as_str()));
                assert_eq!(found, wanted, "{bank} {locator}");
            }
        }
    }

    #[test]
    fn a_number_is_a_channel_only_where_the_count_of_slots_leaves_no_doubt() {
        for (name, socket, number) in [
            ("PROC 2 DIMM 3", Some(2), Some(3)),
            ("B12", Some(1), Some(12)),
            ("DIMM 7", None, None),
        ] {
            let place = place("Not Specified", name);
            assert_eq!((place.socket, place.channel, place.number), (socket, None, number));
        }
        for (number, slots, kind, is_interleaved, channel) in [
            (1, 16, "DDR4", true, Some("0")),
            (8, 16, "DDR4", true, Some("7")),
            (9, 16, "DDR4", true, Some("0")),
            (2, 16, "DDR5", false, Some("0")),
            (16, 16, "DDR5", false, Some("7")),
            // Six channels or four.
            (3, 12, "DDR4", true, None),
            (17, 16, "DDR4", true, None),
        ] {
            assert_eq!(numbered(number, slots, kind, is_interleaved).as_deref(), channel);
        }
    }
}
