//! Asks util-linux's `wipefs` what is on a device.
//!
//! What must stay true: it never runs without `--no-act`. It looks at the device that this process
//! has open, not at what a path leads to by then.

use std::process::{Command, Stdio};

use super::Signature;

/// Where it is: administrators' programs are not in everybody's search path.
const PROGRAMS: [&str; 4] = ["/usr/sbin/wipefs", "/usr/bin/wipefs", "/sbin/wipefs", "wipefs"];

/// What it says; `None` if it is not there or did not come to an end.
pub(super) fn signatures(path: &str) -> Option<Vec<Signature>> {
    let output = PROGRAMS.iter().find_map(|program| {
        Command::new(program)
            .args(["--no-act", "--parsable", "--output", "OFFSET,LENGTH,TYPE,UUID,LABEL", "--"])
            .arg(path)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()
    })?;
    output.status.success().then(|| parse(&String::from_utf8_lossy(&output.stdout)))
}

/// One signature a line, in columns as asked for. The label is the last because it may have commas.
fn parse(text: &str) -> Vec<Signature> {
    let mut found: Vec<Signature> =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(parse_line).collect();
    found.sort_by_key(|signature| signature.offset);
    found
}

fn parse_line(line: &str) -> Option<Signature> {
    let mut columns = line.splitn(5, ',');
    let offset = columns.next()?.strip_prefix("0x")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let bytes = columns.next()?.parse().ok()?;
    let kind = columns.next()?.to_owned();
    let mut name = || columns.next().map(unescape).filter(|name| !name.is_empty());
    Some(Signature { kind, offset, bytes, uuid: name(), label: name() })
}

/// Without the `\x20` that the program writes for bytes that could confuse a reader.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = rest
            .strip_prefix(b"\\x")
            .and_then(|digits| digits.get(..2))
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Signature, parse};

    #[test]
    fn the_programs_lines_become_signatures_in_order_of_offsets() {
        let text = "# offset,length,type,uuid,label\n\
            0x3ffff000,8,gpt,,\n\
            0x438,2,ext4,8b0ccb5f-ad83,my\\x20label,x\n\
            0x1fe,2,PMBR,,\nnonsense\n";
        let signature = |kind: &str, offset, bytes, named: Option<(&str, &str)>| Signature {
            kind: kind.to_owned(),
            offset,
            bytes,
            uuid: named.map(|(uuid, _)| uuid.to_owned()),
            label: named.map(|(_, label)| label.to_owned()),
        };
        let wanted = [
            signature("PMBR", 0x1fe, 2, None),
            signature("ext4", 0x438, 2, Some(("8b0ccb5f-ad83", "my label,x"))),
            signature("gpt", 0x3fff_f000, 8, None),
        ];
        assert_eq!(parse(text), wanted);
        assert_eq!(parse(""), []);
    }
}
