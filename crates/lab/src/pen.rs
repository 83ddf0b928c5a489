//! The pen: every picture of the lab is drawn with it, as SVG that prints, needs no script and asks
//! the network for nothing.
//!
//! What must stay true: whatever a device or a record says is escaped here, and nowhere else;
//! colours are the Okabe-Ito ones, which colour-blind people can tell apart, or classes that follow
//! the reader's light or dark setting. Not here: what is drawn, and where.

use std::fmt::Write;

/// Okabe and Ito's colours, which people with any colour vision can tell apart.
pub const COLOURS: [&str; 6] = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"];

pub type At = (f64, f64);

/// A picture that is being drawn. Paint is a colour, `#0072B2`, or a class of the style.
#[derive(Debug, Default)]
pub struct Pen {
    out: String,
}

impl Pen {
    /// A picture of this size, which `title` describes for those who do not see it; `style` stands
    /// in it.
    pub fn new((width, height): At, title: &str, style: &str) -> Pen {
        let title = escape(title);
        let out = format!(
            "<svg class=\"chart\" role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {width:.0} \
             {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\"><title>{title}</title>{style}"
        );
        Pen { out }
    }

    pub fn text(&mut self, (x, y): At, anchor: &str, class: &str, words: &str) {
        let words = escape(words);
        let _ = write!(
            self.out,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#
        );
    }

    /// A bar from its upper left corner, and what is told under the pointer.
    pub fn bar(&mut self, (x, y): At, (width, height): At, paint: &str, told: &str) {
        let paint = painted(paint);
        let _ = write!(
            self.out,
            r#"<rect {paint} x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}">"#
        );
        if !told.is_empty() {
            let _ = write!(self.out, "<title>{}</title>", escape(told));
        }
        self.out.push_str("</rect>");
    }

    pub fn line(&mut self, class: &str, (x1, y1): At, (x2, y2): At) {
        let _ = write!(
            self.out,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub fn dot(&mut self, (x, y): At, paint: &str) {
        let paint = painted(paint);
        let _ = write!(self.out, r#"<circle {paint} cx="{x:.1}" cy="{y:.1}" r="3"/>"#);
    }

    /// A line through many places; each series has a pattern of its own besides its colour.
    pub fn curve(&mut self, places: impl Iterator<Item = At>, series: usize) {
        let colour = COLOURS[series % COLOURS.len()];
        let dashes = ["none", "7 4", "2 3", "9 3 2 3"][series % 4];
        let points: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            self.out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    pub fn path(&mut self, class: &str, width: f64, way: &str) {
        let _ = write!(self.out, r#"<path class="{class}" stroke-width="{width:.1}" d="{way}"/>"#);
    }

    /// Names of series, in as many rows as they need in `width`; the height that they take.
    pub fn legend(&mut self, series: &[String], width: f64) -> f64 {
        for (at, (name, place)) in series.iter().zip(places(series, width)).enumerate() {
            self.bar(place, (13.0, 13.0), COLOURS[at % COLOURS.len()], "");
            self.text((place.0 + 19.0, place.1 + 11.0), "start", "small", name);
        }
        legend_height(series, width)
    }

    pub fn done(self) -> String {
        self.out + "</svg>"
    }
}

pub fn legend_height(series: &[String], width: f64) -> f64 {
    places(series, width).last().map_or(8.0, |it| it.1) + 13.0
}

fn places(series: &[String], width: f64) -> Vec<At> {
    let (mut x, mut y) = (20.0, 8.0);
    let place = |name: &String| {
        let own = 19.0 + 7.0 * count(name.chars().count()) + 24.0;
        if x > 20.0 && x + own > width {
            (x, y) = (20.0, y + 20.0);
        }
        x += own;
        (x - own, y)
    };
    series.iter().map(place).collect()
}

pub fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn painted(paint: &str) -> String {
    let key = if paint.starts_with('#') { "fill" } else { "class" };
    format!("{key}=\"{paint}\"")
}

/// Text as it may stand in SVG and HTML, in one line.
pub fn escape(words: &str) -> String {
    let line = words.replace(char::is_control, " ");
    let Ok(escaped) = askama::filters::escape(line, askama::filters::Html);
    escaped.to_string()
}

/// At most so many letters of a text.
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(3)).collect();
    format!("{head}...")
}

/// A text in lines of fewer than `most` letters, broken between words.
pub fn folded(text: &str, most: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rows.last_mut() {
            Some(row) if row.chars().count() + word.chars().count() < most => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{Pen, escape, folded, short};

    #[test]
    fn what_devices_say_cannot_become_markup() {
        assert_eq!(escape("<script>\"&\u{7}"), "&#60;script&#62;&#34;&#38; ");
        let mut pen = Pen::new((9.0, 9.0), "a<b", "");
        pen.text((0.0, 0.0), "end", "small", "c<d");
        pen.bar((0.0, 0.0), (1.0, 1.0), "lost", "e<f");
        pen.legend(&["g<h".to_owned()], 9.0);
        let svg = pen.done();
        assert!(svg.matches("&#60;").count() == 5 && !svg.contains("<b"), "{svg}");
    }

    #[test]
    fn long_texts_are_cut_or_folded_between_words() {
        assert_eq!((short("abcdefgh", 6).as_str(), short("abc", 6).as_str()), ("abc...", "abc"));
        let rows = folded("192K sequential writes, 1 x 8, through a file system", 39);
        assert_eq!(rows, ["192K sequential writes, 1 x 8, through", "a file system"]);
        assert_eq!(folded("short", 39).len(), 1);
    }
}
