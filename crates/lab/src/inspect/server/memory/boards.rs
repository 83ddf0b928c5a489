//! How boards name their memory slots: a table of makers, and where a slot is by its name.
//!
//! Sources: outputs of `dmidecode -t memory` that owners published, and the makers' rules for
//! populating memory. Some makers only number the slots of a processor; which slots share a channel
//! follows from how many there are, and only some of these counts leave no doubt.
//!
//! What must stay true: a name that no row matches has no place; it is not guessed.

use regex::Regex;
use std::sync::LazyLock;

/// Where a slot is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Socket as the board counts it.
    pub socket: Option<u64>,
    /// Channel: `A`, `2`, or `1.2` for channel 2 of the second memory controller.
    pub channel: Option<String>,
    /// Number of the slot at its socket, where the board counts slots instead of channels.
    pub number: Option<u64>,
}

/// Which of dmidecode's two names a row is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    Bank,
    Slot,
}

/// Makers, and an expression with the groups `s` (socket), `m` (memory controller), `c` (channel),
/// `l` (socket as a letter) and `n` (number of the slot). The first row that matches has the slot;
/// what it does not tell, later rows may.
const BOARDS: [(&str, Name, &str); 15] = [
    (
        "Supermicro, Lenovo, Intel",
        Name::Bank,
        r"^P(?<s>\d+)_NODE(?<m>\d+)_CHANNEL(?<c>\d+)_DIMM\d+",
    ),
    ("Huawei", Name::Bank, r"^_NODE(?<s>\d+)_CHANNEL(?<c>\d+)_DIMM\d+"),
    ("Intel, Cisco", Name::Bank, r"^NODE ?(?<s>\d+) CHANNEL ?(?<c>\d+) DIMM ?\d+"),
    (
        "AMD's firmware: ASUS, Gigabyte, HPE, Lenovo",
        Name::Bank,
        r"^P(?<s>\d+) CHANNEL (?<c>[A-P])$",
    ),
    ("Supermicro", Name::Slot, r"^P(?<s>\d+)[-_]?DIMM_?(?<c>[A-P])\d$"),
    ("Gigabyte, Cisco", Name::Slot, r"^DIMM_P(?<s>\d+)_(?<c>[A-P])\d$"),
    ("Intel, ASUS, Tyan", Name::Slot, r"^CPU(?<s>\d+)_DIMM_?(?<c>[A-P])\d$"),
    ("ASRock Rack", Name::Slot, r"^DDR\d_(?<c>[A-P])\d$"),
    ("Inspur, H3C", Name::Slot, r"^CPU(?<s>\d+)_CH?(?<c>\d+)_?D\d+$"),
    ("Intel, for desktops", Name::Slot, r"^(?:CONTROLLER(?<m>\d+)-)?CHANNEL(?<c>[A-D])-DIMM\d$"),
    ("Huawei", Name::Slot, r"^DIMM(?<s>\d)(?<c>\d)\d$"),
    ("HPE", Name::Slot, r"^PROC (?<s>\d+) DIMM (?<n>\d+)"),
    ("Dell", Name::Slot, r"^(?<l>[A-D])(?<n>\d{1,2})$"),
    ("ASUS, Gigabyte, Intel", Name::Slot, r"^DIMM_?(?<c>[A-P])\d$"),
    ("Intel", Name::Bank, r"^NODE (?<s>\d+)$"),
];

/// The rows, ready to be asked.
static ROWS: LazyLock<Vec<(Name, Regex)>> = LazyLock::new(|| {
    let row = |(_, name, text): (_, Name, &str)| Some((name, Regex::new(text).ok()?));
    BOARDS.into_iter().filter_map(row).collect()
});

/// The place of the slot with these two names.
pub fn place(bank: &str, locator: &str) -> Place {
    let (bank, locator) = (bank.trim().to_ascii_uppercase(), locator.trim().to_ascii_uppercase());
    let mut place = Place::default();
    for (which, expression) in ROWS.iter() {
        let name = if *which == Name::Bank { &bank } else { &locator };
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

    /// Names as owners of such servers published them: maker, bank locator, locator, socket,
    /// channel.
    const SEEN: [(&str, &str, &str, Option<u64>, &str); 14] = [
        ("Supermicro", "P0_Node0_Channel0_Dimm0", "P1-DIMMA1", Some(0), "0.0"),
        ("Supermicro", "P1_Node1_Channel2_Dimm0", "P2-DIMMF1", Some(1), "1.2"),
        ("Supermicro", "", "P2-DIMMF1", Some(2), "F"),
        ("Gigabyte", "BANK 0", "DIMM_P0_A0", Some(0), "A"),
        ("Gigabyte", "BANK 0", "DIMM_P1_H1", Some(1), "H"),
        ("Lenovo", "P0 CHANNEL A", "DIMM 1", Some(0), "A"),
        ("Intel", "NODE 1", "CPU1_DIMM_A1", Some(1), "A"),
        ("Intel", "NODE 2 CHANNEL 1 DIMM 0", "x", Some(2), "1"),
        ("Intel", "NODE 2", "DIMM_B1", Some(2), "B"),
        ("ASUS", "BANK 0", "ChannelA-DIMM0", None, "A"),
        ("ASUS", "BANK 0", "Controller1-ChannelA-DIMM0", None, "1.A"),
        ("ASUS", "P0 CHANNEL C", "DIMM_C1", Some(0), "C"),
        ("Huawei", "_Node1_Channel2_Dimm0", "DIMM120", Some(1), "2"),
        ("Inspur", "BANK 3", "CPU0_C3D1", Some(0), "3"),
    ];

    #[test]
    fn every_row_is_an_expression() {
        assert_eq!(ROWS.len(), BOARDS.len());
    }

    #[test]
    fn slots_of_real_boards_have_their_places() {
        for (maker, bank, locator, socket, channel) in SEEN {
            let place = place(bank, locator);
            let found = (place.socket, place.channel.as_deref());
            assert_eq!(found, (socket, Some(channel)), "{maker}: {bank} {locator}");
        }
    }

    #[test]
    fn boards_that_number_their_slots_tell_no_channel_by_the_name() {
        let hpe = place("Not Specified", "PROC 2 DIMM 3");
        assert_eq!((hpe.socket, hpe.channel, hpe.number), (Some(2), None, Some(3)));
        let dell = place("Not Specified", "B12");
        assert_eq!((dell.socket, dell.channel, dell.number), (Some(1), None, Some(12)));
        let none = place("Bank 1", "DIMM 7");
        assert_eq!((none.socket, none.channel, none.number), (None, None, None));
    }

    #[test]
    fn a_number_is_a_channel_only_where_the_count_of_slots_leaves_no_doubt() {
        let dell = |number| numbered(number, 16, "DDR4", true);
        assert_eq!(
            (dell(1), dell(8), dell(9)),
            (Some("0".into()), Some("7".into()), Some("0".into()))
        );
        let hpe = |number| numbered(number, 16, "DDR5", false);
        assert_eq!(
            (hpe(1), hpe(2), hpe(16)),
            (Some("0".into()), Some("0".into()), Some("7".into()))
        );
        assert_eq!(numbered(3, 12, "DDR4", true), None, "six channels or four");
        assert_eq!(numbered(17, 16, "DDR4", true), None);
    }
}
