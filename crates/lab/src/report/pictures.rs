//! Pictures inside the page: flame graphs without what only a live picture needs, and as many of
//! them as a page should carry.
//!
//! What must stay true: every frame of a still picture that is at least 0.3 % wide is in it, where
//! it is in the file beside the run; that file keeps the narrower ones, its script and the names
//! under the pointer; what did not fit is counted.

/// Parts of a live flame graph that a still picture cannot use: its script, and the names that
/// appear under the pointer.
const LIVE: [(&str, &str); 2] = [("<script", "</script>"), ("<title>", "</title>")];
/// Narrower frames, percent of the picture's width, are a few points wide and most of its bytes.
const WIDTH_MIN: f64 = 0.3;

/// How many bytes of pictures a page still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    left: usize,
    /// Pictures that did not fit.
    pub left_out: usize,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget { left: bytes, left_out: 0 }
    }

    pub fn take(&mut self, svg: &str) -> Option<String> {
        let address = data_address(&still(svg));
        match self.left.checked_sub(address.len()) {
            Some(left) => {
                self.left = left;
                Some(address)
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

/// `svg` from its first element, without its live parts, its narrowest frames and texts that are
/// empty.
pub fn still(svg: &str) -> String {
    let mut out = svg[svg.find("<svg").unwrap_or(0)..].to_owned();
    for (begin, end) in LIVE {
        out = without(&out, begin, end, |_| true);
    }
    out = without(&out, "<g>", "</g>", is_narrow);
    // A frame too narrow for its name has a text with nothing in it.
    out = without(&out, "<text", "</text>", |text| text.ends_with("></text>"));
    // Places for the script.
    out = without(&out, " fg:x=\"", "\"", |_| true);
    without(&out, " fg:w=\"", "\"", |_| true)
}

fn is_narrow(frame: &str) -> bool {
    let width = frame.split_once(" width=\"").and_then(|(_, rest)| rest.split_once("%\""));
    width.and_then(|(width, _)| width.parse::<f64>().ok()).is_some_and(|width| width < WIDTH_MIN)
}

/// `text` without those pieces from a `begin` to the `end` that follows it which `goes` picks.
fn without(text: &str, begin: &str, end: &str, goes: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(begin) {
        let inner = at + begin.len();
        let Some(length) = rest[inner..].find(end) else { break };
        let close = inner + length + end.len();
        out.push_str(&rest[..at]);
        if !goes(&rest[at..close]) {
            out.push_str(&rest[at..close]);
        }
        rest = &rest[close..];
    }
    out.push_str(rest);
    out
}

/// A picture as an address of its own: whatever script is in it cannot reach the page. It may stand
/// between double quotes as it is.
pub fn data_address(svg: &str) -> String {
    let mut out = String::with_capacity(svg.len() + svg.len() / 4);
    out.push_str("data:image/svg+xml,");
    let has_quote = |tag: &str| tag.split('>').next().is_some_and(|tag| tag.contains('\''));
    let is_plain = !svg.split('<').skip(1).any(has_quote);
    let mut is_in_tag = false;
    for byte in svg.bytes() {
        is_in_tag = (is_in_tag || byte == b'<') && byte != b'>';
        match byte {
            // Within a tag both kinds of quotes serve, and one of them needs no escape here. Not if
            // a value has it inside.
            b'"' if is_in_tag && is_plain => out.push('\''),
            b'"' | b'#' | b'%' | b'&' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                out.push_str(&format!("%{byte:02X}"));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Budget, data_address, still};

    const LIVE: &str = "<?xml?><!DOCTYPE svg><svg a=\"1\"><script type=\"x\">\
                        <![CDATA[ if (a < b) {} ]]></script><g><title>name (3 samples)</title>\
                        <rect x=\"1%\" width=\"0.4%\" fg:x=\"0\" fg:w=\"1\"/><text x=\"2\"></text>\
                        </g><g><title>thin</title><rect width=\"0.2999%\"/></g>\
                        <g><title>wide</title><text x=\"3\">wide</text></g></svg>";

    #[test]
    fn a_still_picture_has_its_wide_frames_and_no_script() {
        let out = still(LIVE);
        let frames = "<g><rect x=\"1%\" width=\"0.4%\"/></g><g><text x=\"3\">wide</text></g>";
        assert_eq!(out, format!("<svg a=\"1\">{frames}</svg>"));
        for torn in ["<svg><script>", "<svg><text", "no picture", "", "<g>"] {
            assert_eq!(still(torn), torn);
        }
    }

    #[test]
    fn an_address_stands_between_double_quotes_and_means_the_same_picture() {
        let address = data_address("<a b=\"1%\">\"x' & #\u{e9}</a>");
        assert_eq!(address, "data:image/svg+xml,<a b='1%25'>%22x' %26 %23%C3%A9</a>");
        assert!(data_address("<a b=\"it's\"/>").contains("b=%22it's%22"));
    }

    #[test]
    fn a_page_takes_as_many_pictures_as_fit_and_counts_the_others() {
        let size = data_address(&still(LIVE)).len();
        let mut budget = Budget::new(size + 5);
        assert!(budget.take(LIVE).is_some() && budget.take(LIVE).is_none());
        assert_eq!((budget.left_out, budget.take("<svg").is_some()), (1, false));
    }
}
