//! Short text of a fixed size on disk: UTF-8, padded with zero bytes, no control characters.
//!
//! What must stay true: a `Text` that exists is valid, so encoding it cannot fail and printing it
//! cannot garble a terminal, whoever wrote the bytes.

use std::fmt;

use crate::format::NAME_BYTES;

/// Text of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// No text.
    pub const EMPTY: Text<N> = Text { bytes: [0; N] };

    /// `text` as it is; `None` if it is longer than `N` bytes or holds a control character.
    pub fn new(text: &str) -> Option<Self> {
        if text.len() > N || text.chars().any(char::is_control) {
            return None;
        }
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Text { bytes })
    }

    /// `text` without surrounding blanks and control characters, cut to `N` bytes at a character
    /// boundary. For serials and host ids, which others choose.
    pub fn cut(text: &str) -> Self {
        let clean: String = text.trim().chars().filter(|c| !c.is_control()).collect();
        let end = (0..=N.min(clean.len())).rev().find(|&at| clean.is_char_boundary(at));
        Self::new(&clean[..end.unwrap_or(0)]).expect("cut to size, control characters removed")
    }

    /// The text in the field `bytes` of a record; `None` if it is not valid.
    pub fn from_bytes(bytes: [u8; N]) -> Option<Self> {
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(N);
        if bytes[length..].iter().any(|&byte| byte != 0) {
            return None;
        }
        Self::new(std::str::from_utf8(&bytes[..length]).ok()?)
    }

    /// The bytes for a record, padded with zeros.
    pub fn to_bytes(self) -> [u8; N] {
        self.bytes
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(N);
        std::str::from_utf8(&self.bytes[..length]).expect("checked when made")
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The name of an array or of a spare pool: 1 to 64 bytes of UTF-8 without control characters,
/// blanks at the ends, `/`, or a leading `.` or `-`, so that it can stand in a path and on a
/// command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArrayName(Text<NAME_BYTES>);

/// A name that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' cannot be a name: use 1 to 64 bytes of visible characters without '/', '\\', \
     blanks at the ends or a leading '.' or '-'"
)]
pub struct NameFault(String);

impl ArrayName {
    /// `name`, if it is one.
    ///
    /// # Errors
    /// If it breaks one of the rules above.
    pub fn new(name: &str) -> Result<Self, NameFault> {
        Text::new(name)
            .and_then(Self::from_text)
            .ok_or_else(|| NameFault(name.escape_debug().to_string()))
    }

    /// `name` for something that is made now: no `\`, which tables of mounts write otherwise, and
    /// no character that is not seen, or turns the others round. Older arrays may have such names.
    ///
    /// # Errors
    /// As [`new`](Self::new), or if it has such a character.
    pub fn for_new(name: &str) -> Result<Self, NameFault> {
        if name.chars().any(|c| c == '\\' || is_unseen(c)) {
            return Err(NameFault(name.escape_default().to_string()));
        }
        ArrayName::new(name)
    }

    /// `text`, if it is a name.
    pub fn from_text(text: Text<NAME_BYTES>) -> Option<Self> {
        let name = text.as_str();
        let allowed = !name.is_empty()
            && !name.contains('/')
            && !name.starts_with(['.', '-'])
            && name.trim() == name;
        allowed.then_some(ArrayName(text))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The bytes for a record, padded with zeros.
    pub fn to_bytes(self) -> [u8; NAME_BYTES] {
        self.0.to_bytes()
    }
}

/// Blanks other than the usual one, separators of lines, and what Unicode calls format characters,
/// fillers and variations: marks of direction, joiners, tags.
fn is_unseen(c: char) -> bool {
    let is_other_blank = c.is_whitespace() && c != ' ';
    is_other_blank
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{600}'..='\u{605}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

impl fmt::Display for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrayName, Text};

    #[test]
    fn names_that_would_break_a_path_or_a_command_line_are_refused() {
        for name in ["", "a/b", ".hidden", "-f", " a", "a ", "a\nb", "a\0b", &"x".repeat(65)] {
            assert!(ArrayName::new(name).is_err(), "{name:?}");
        }
        for unseen in [
            "\u{202e}",
            "\u{200b}",
            "\u{2028}",
            "\u{2029}",
            "\u{feff}",
            "\u{a0}",
            "\u{e0041}",
            "\\",
        ] {
            let name = format!("a{unseen}b");
            let told = ArrayName::for_new(&name).expect_err("refused").to_string();
            assert!(told.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{told:?}");
            assert!(ArrayName::new(&name).is_ok(), "an array that has it still starts: {name:?}");
        }
        for name in ["tank0", "größe", "my array", "雪", "a'b", &"x".repeat(64)] {
            assert!(ArrayName::for_new(name).is_ok(), "{name:?}");
        }
        for name in ["tank0", "größe", "my array", &"x".repeat(64)] {
            assert_eq!(ArrayName::new(name).map(|n| n.as_str().to_owned()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn long_serials_are_cut_at_a_character_boundary() {
        assert_eq!(Text::<4>::cut("  ab\u{7}cdef ").as_str(), "abcd");
        assert_eq!(Text::<4>::cut("abcé").as_str(), "abc");
        assert_eq!(Text::<4>::cut("").as_str(), "");
    }

    #[test]
    fn bytes_after_the_end_of_the_text_must_be_zero() {
        assert_eq!(Text::from_bytes(*b"ab\0c"), None);
        assert_eq!(Text::from_bytes(*b"a\xffcd"), None);
        assert_eq!(Text::from_bytes(*b"abcd").map(|t| t.to_string()), Some("abcd".into()));
    }
}
