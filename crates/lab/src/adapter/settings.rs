//! What an engine is set to: `mdadm:group_thread_cnt=64`, or several values to be tried,
//! `mdadm:group_thread_cnt=8/32/64`.
//!
//! What must stay true: a setting that an engine does not have is refused, and so is a value that
//! could be read as anything but one word.

use crate::refusal::Refusal;
use std::collections::BTreeMap;

/// Most combinations that are tried of one engine.
const VARIANTS_MAX: usize = 16;

pub type Settings = BTreeMap<String, String>;

/// The engine called `name`, once for each combination of the values that its settings name.
pub fn variants(name: &str) -> Result<Vec<String>, Refusal> {
    let Some((kind, rest)) =
        name.split_once(':').filter(|(kind, rest)| *kind != "device" && rest.contains('='))
    else {
        return Ok(vec![name.to_owned()]);
    };
    let mut all = vec![String::new()];
    for part in rest.split(',') {
        let (key, values) = part.split_once('=').ok_or_else(|| refused(name, "KEY=VALUE"))?;
        let longer = |begin: &String| {
            let gap = if begin.is_empty() { "" } else { "," };
            let one = |value| format!("{begin}{gap}{key}={value}");
            values.split('/').map(one).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
        if all.len() > VARIANTS_MAX {
            return Err(refused(name, "at most 16 combinations"));
        }
    }
    Ok(all.into_iter().map(|set| format!("{kind}:{set}")).collect())
}

/// The settings of one engine; `known` are those that it has, all if that is empty.
pub fn parse(rest: &str, known: &[&str]) -> Result<Settings, Refusal> {
    let mut settings = Settings::new();
    for part in rest.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| refused(rest, "KEY=VALUE"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let is_plain = |text: &str| !text.is_empty() && text.chars().all(plain);
        if value.contains('/') {
            return Err(refused(part, "one value; only compare tries several"));
        }
        if !is_plain(key) || !is_plain(value) || !(known.is_empty() || known.contains(&key)) {
            let wanted = match known {
                [] => "KEY=VALUE of letters, digits and _ . -".to_owned(),
                known => format!("one of {}", known.join(", ")),
            };
            return Err(refused(part, &wanted));
        }
        settings.insert(key.to_owned(), value.to_owned());
    }
    Ok(settings)
}

fn refused(what: &str, wanted: &str) -> Refusal {
    let said = format!("setting '{what}' is not understood; nothing was done");
    Refusal::cannot_run("engine.setting", said).hint(format!("give {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::{parse, variants};

    #[test]
    fn every_combination_of_the_values_is_an_engine_of_its_own() {
        let all = variants("mdadm:group_thread_cnt=8/64,stripe_cache_size=4096/16384").expect("ok");
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], "mdadm:group_thread_cnt=8,stripe_cache_size=16384");
        for name in ["btrfs", "ashlar:log", "device:/dev/a=b/c"] {
            assert_eq!(variants(name).expect("ok"), [name]);
        }
        assert!(variants("mdadm:a=1/2/3/4/5,b=1/2/3/4").is_err(), "20 combinations");
    }

    #[test]
    fn what_could_be_more_than_one_word_is_refused() {
        let settings = parse("group_thread_cnt=64", &[]).expect("ok");
        assert_eq!(settings["group_thread_cnt"], "64");
        for text in ["a", "a=1;reboot", "../x=1", "a=$(x)", "a=1/2", "=1", "a="] {
            assert_eq!(parse(text, &[]).expect_err(text).code, "engine.setting", "{text}");
        }
        let refusal = parse("speed=9", &["policy"]).expect_err("unknown");
        assert!(refusal.hint.contains("one of policy"), "{refusal}");
    }
}
