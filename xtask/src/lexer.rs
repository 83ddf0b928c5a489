//! Just enough of Rust's lexical grammar to tell code from comments and literals.
//!
//! What must stay true: the result has the same lines as the source, so that line numbers agree;
//! what is inside comments, strings and character literals is gone. Not a parser.

/// `source` with every comment, string and character literal replaced by spaces; newlines stay.
pub fn code_only(source: &str) -> String {
    without(source, |_| true)
}

/// `source` with every string and character literal replaced by spaces; newlines and comments stay.
pub fn without_literals(source: &str) -> String {
    without(source, |part| !part.starts_with('/'))
}

/// `source` with spaces for those comments and literals that `goes` says.
fn without(source: &str, goes: fn(&str) -> bool) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skipped = literal_or_comment(rest, code.chars().next_back());
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let (part, after) = rest.split_at(skipped);
            let blank = goes(part);
            code.extend(part.chars().map(|c| if blank && c != '\n' { ' ' } else { c }));
            rest = after;
        }
    }
    code
}

/// Length in bytes of the comment or literal that `rest` starts with; 0 if it starts with code.
fn literal_or_comment(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if let Some(inside) = rest.strip_prefix('"') {
        return 1 + until_quote(inside);
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    if before.is_some_and(is_identifier) {
        return 0; // an r or b in the middle of a word
    }
    raw_string(rest)
}

/// Whether `c` can be part of an identifier.
pub fn is_identifier(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Bytes up to and including the closing quote of a string with escapes.
fn until_quote(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal, or 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character itself may be a quote.
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// `r"..."`, `r#"..."#`, `b"..."`, `br#"..."#`, `c"..."`; 0 if none of them.
fn raw_string(rest: &str) -> usize {
    let prefix = rest.bytes().take_while(|byte| matches!(byte, b'b' | b'r' | b'c')).count();
    if prefix == 0 || prefix > 2 {
        return 0;
    }
    let hashes = rest[prefix..].bytes().take_while(|byte| *byte == b'#').count();
    let open = prefix + hashes;
    if !rest[open..].starts_with('"') {
        return 0;
    }
    if !rest[..prefix].contains('r') {
        return if hashes == 0 { open + 1 + until_quote(&rest[open + 1..]) } else { 0 };
    }
    let close = format!("\"{}", "#".repeat(hashes));
    rest[open + 1..].find(&close).map_or(rest.len(), |at| open + 1 + at + close.len())
}

/// The identifiers and keywords of `code`, each with its line number from 1.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(at, line)| {
        line.split(|c| !is_identifier(c)).filter(|word| !word.is_empty()).map(move |w| (at + 1, w))
    })
}

#[cfg(test)]
mod tests {
    use super::{code_only, words};

    fn survives(source: &str) -> Vec<String> {
        words(&code_only(source)).map(|(_, word)| word.to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_leave_no_word() {
        for gone in [
            "// gone",
            "/* gone /* gone */ gone */",
            "\"gone \\\" gone\"",
            "r\"gone\"",
            "r#\"gone \" gone\"#",
            "b\"gone\"",
            "br##\"gone \"# gone\"##",
            "'g'",
            "'\\''",
            "'\\u{7f}'",
        ] {
            assert_eq!(survives(&format!("a {gone}\n b")), ["a", "b"], "{gone}");
        }
    }

    #[test]
    fn lifetimes_and_words_that_end_in_r_are_code() {
        assert_eq!(survives("fn f<'a>(x: &'a str)"), ["fn", "f", "a", "x", "a", "str"]);
        assert_eq!(survives("for c in bar\"x\""), ["for", "c", "in", "bar"]);
    }

    #[test]
    fn lines_keep_their_numbers() {
        let code = code_only("a\n/* x\n y */ b\n\"1\n2\" c");
        let lines: Vec<_> = words(&code).collect();
        assert_eq!(lines, [(1, "a"), (3, "b"), (5, "c")]);
    }
}
