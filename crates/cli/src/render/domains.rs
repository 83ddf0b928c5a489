//! The failure domains of an array, drawn with their members.

use ashlar_api::v1::domain::{FailureDomain, FailureDomains};

/// What a lost domain costs, then a line for each domain.
pub fn lines(domains: &FailureDomains) -> Vec<String> {
    let head = format!("{} domains: {}", domains.domains.len(), domains.cost());
    let one = |(at, domain): (usize, &FailureDomain)| line(at, domain);
    std::iter::once(head).chain(domains.domains.iter().enumerate().map(one)).collect()
}

fn line(at: usize, domain: &FailureDomain) -> String {
    let slots = match (domain.slots.first(), domain.slots.last()) {
        (Some(first), Some(last)) if first != last => format!("slots {first} to {last}"),
        (Some(only), _) => format!("slot {only}"),
        _ => "no slots".to_owned(),
    };
    let name = domain.name.as_ref().map_or(String::new(), |name| format!("  {name}"));
    let elsewhere = domain.elsewhere.iter();
    let elsewhere: String = elsewhere
        .map(|(slot, place)| format!("; the drive of slot {slot} is in {place}"))
        .collect();
    format!("domain {at}  {slots}{name}{elsewhere}")
}

#[cfg(test)]
mod tests {
    use super::lines;
    use ashlar_api::v1::domain::{DomainKind, FailureDomain, FailureDomains};

    #[test]
    fn domains_are_drawn_with_their_members_and_with_drives_that_are_elsewhere() {
        let domain = |slots: std::ops::Range<u16>, name: Option<&str>| FailureDomain {
            name: name.map(str::to_owned),
            slots: slots.collect(),
            elsewhere: Vec::new(),
        };
        let mut domains = FailureDomains {
            kind: DomainKind::Enclosure,
            strips_lost: 1,
            parity_strips: 2,
            domains: vec![domain(0..2, Some("0x50a")), domain(2..3, None)],
        };
        domains.domains[0].elsewhere = vec![(1, "0x50b".to_owned())];
        let wanted = [
            "2 domains: a lost enclosure costs at most 1 strip of a stripe: \
             all data stays readable, and 1 more drive may fail",
            "domain 0  slots 0 to 1  0x50a; the drive of slot 1 is in 0x50b",
            "domain 1  slot 2",
        ];
        assert_eq!(lines(&domains), wanted);
    }
}
