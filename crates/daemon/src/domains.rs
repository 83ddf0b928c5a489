//! The failure domains of a declustered array beside where its drives are plugged in now.
//!
//! What must stay true: the superblock says which slots are a domain, the kernel says where a drive
//! is. What a lost domain costs follows from both: as many strips of a stripe as failure domains of
//! the layout have a drive in it.
//!
//! Not here: which drive becomes which member at creation (the command line), and where strips lie.

use crate::convert;
use ashlar_api::v1::array::Create;
use ashlar_api::v1::domain::{DomainKind, FailureDomain, FailureDomains};
use ashlar_api::v1::growth::Grow;
use ashlar_api::{ApiError, codes};
use ashlar_device::{Bay, SharedPart};
use ashlar_engine::ArrayStatus;
use ashlar_layout::Geometry;
use ashlar_layout::declustered::{DomainPlan, DomainWish, plan_domains};
use ashlar_ondisk::{EnclosureKind, EnclosureRecord};
use ashlar_units::MemberIdx;
use std::collections::BTreeSet;

/// What a new array records of its domains, with the members of a failure domain of the layout.
///
/// # Errors
/// If the devices do not divide into such domains, or a domain would hold too much of a stripe.
pub fn planned(create: &Create) -> Result<(usize, Option<EnclosureRecord>), ApiError> {
    let Some(wish) = create.declustered else { return Ok((1, None)) };
    let Some(domains) = wish.domains else { return Ok((1, None)) };
    let refuse = |message: String| {
        let message = format!("{} was not created: {message}; nothing was written", create.name);
        ApiError::new(codes::REQUEST_MALFORMED, message, "see 'ashlar create --help'")
    };
    let (devices, count) = (create.devices.len(), usize::from(domains.count));
    if count == 0 || !devices.is_multiple_of(count) {
        let message = format!("{devices} devices do not divide into {count} equal domains");
        return Err(refuse(message));
    }
    let parity = create.level.fixed_parity().or(create.parity.map(usize::from)).unwrap_or(0);
    let wish = DomainWish {
        enclosures: count,
        drives_each: devices / count,
        width: wish.stripe_width.into(),
        parity_strips: parity,
        spares: wish.distributed_spares.into(),
    };
    let DomainPlan { domain_members, strips_in_enclosure, .. } =
        plan_domains(&wish).map_err(|error| refuse(error.to_string()))?;
    let strips = u8::try_from(strips_in_enclosure).expect("at most 64");
    Ok((
        domain_members,
        Some(EnclosureRecord { kind: kind_on_disk(domains.kind), domains: strips }),
    ))
}

fn kind_on_disk(kind: DomainKind) -> EnclosureKind {
    match kind {
        DomainKind::Enclosure => EnclosureKind::Enclosure,
        DomainKind::Path => EnclosureKind::Path,
        DomainKind::Hba => EnclosureKind::Adapter,
        DomainKind::List => EnclosureKind::Listed,
    }
}

fn kind_in_words(kind: EnclosureKind) -> DomainKind {
    match kind {
        EnclosureKind::Enclosure => DomainKind::Enclosure,
        EnclosureKind::Path => DomainKind::Path,
        EnclosureKind::Adapter => DomainKind::Hba,
        EnclosureKind::Listed => DomainKind::List,
    }
}

/// The domains of a running array, if it has some.
pub fn of(array: &ArrayStatus) -> Option<FailureDomains> {
    let bays: Vec<&Bay> = array.members.iter().map(|member| &member.bay).collect();
    Some(Plugged::new(array.enclosures?, &array.geometry, &bays).status())
}

/// What the loss of a domain of a new array costs, in words.
pub fn cost(record: EnclosureRecord, geometry: &Geometry) -> String {
    let bays = vec![Bay::default(); geometry.members()];
    Plugged::new(record, geometry, &bays.iter().collect::<Vec<_>>()).status().cost()
}

/// What somebody should know before this drive goes into a slot; empty if nothing.
///
/// # Errors
/// If then the loss of one domain could lose data that it cannot lose now, unless the operator
/// wants that.
pub fn check_replacement(
    array: &ArrayStatus,
    slot: MemberIdx,
    bay: &Bay,
    is_wanted: bool,
) -> Result<String, ApiError> {
    let Some(record) = array.enclosures else { return Ok(String::new()) };
    let mut bays: Vec<&Bay> = array.members.iter().map(|member| &member.bay).collect();
    // What the slot's last drive was in counts no more.
    let unknown = Bay::default();
    bays[slot.at()] = &unknown;
    let others = Plugged::new(record, &array.geometry, &bays);
    bays[slot.at()] = bay;
    let after = Plugged::new(record, &array.geometry, &bays);
    after.judged(slot, others.name(slot.at() / others.slots), is_wanted)
}

/// What somebody should know before these drives become new members; empty if nothing.
///
/// # Errors
/// If they do not come in domains of the array's kind and size, or if then the loss of one domain
/// could lose data, unless the operator wants that.
pub fn check_growth(array: &ArrayStatus, call: &Grow, new: &[Bay]) -> Result<String, ApiError> {
    let checked = match array.enclosures {
        Some(record) => {
            let bays = array.members.iter().map(|member| &member.bay).chain(new);
            Plugged::new(record, &array.geometry, &bays.collect::<Vec<_>>()).check_new(call)
        }
        None if call.domains.is_some() => {
            Err(Unfit { what: "has no failure domains".to_owned(), next: "leave out --domain" })
        }
        None => Ok(String::new()),
    };
    checked.map_err(|Unfit { what, next }| {
        let message = format!("array '{}' {what}; nothing was written", array.name);
        ApiError::new(codes::REQUEST_MALFORMED, message, next)
    })
}

/// Why new members do not fit the domains of an array, and what would do.
#[derive(PartialEq, Eq, Debug)]
struct Unfit {
    what: String,
    next: &'static str,
}

/// Domains, and what each slot's drive hangs on.
struct Plugged {
    record: EnclosureRecord,
    parity_strips: usize,
    /// Members of a failure domain of the layout.
    domain_members: usize,
    /// Slots of a domain, as the operator sees them.
    slots: usize,
    names: Vec<Option<String>>,
}

impl Plugged {
    fn new(record: EnclosureRecord, geometry: &Geometry, bays: &[&Bay]) -> Plugged {
        let domain_members = geometry.domain_members();
        let part = match record.kind {
            EnclosureKind::Enclosure => Some(SharedPart::Enclosure),
            EnclosureKind::Path => Some(SharedPart::Path),
            EnclosureKind::Adapter => Some(SharedPart::Adapter),
            EnclosureKind::Listed => None,
        };
        Plugged {
            record,
            parity_strips: geometry.parity_strips(),
            domain_members,
            slots: domain_members * usize::from(record.domains),
            names: bays.iter().map(|bay| bay.part(part?)).collect(),
        }
    }

    /// What is to be said of the drive in a slot whose domain is called `home`.
    fn judged(
        &self,
        slot: MemberIdx,
        home: Option<String>,
        is_wanted: bool,
    ) -> Result<String, ApiError> {
        let noun = kind_in_words(self.record.kind).noun();
        let own = self.range(slot.at() / self.slots);
        let Some(place) = self.names[slot.at()].as_ref() else {
            return Ok(format!("; see that it is in the {noun} of {own}"));
        };
        if home.as_ref().is_none_or(|home| home == place) {
            return Ok(String::new());
        }
        let status = self.status();
        let told = format!("it is in {noun} {place}, not in that of {own}");
        if status.strips_lost > status.parity_strips && !is_wanted {
            let message = format!("{told}, and then {}; nothing was written", status.cost());
            let next = format!("take a drive of the right {noun}, or say --other-domain");
            return Err(ApiError::new("member.other_domain", message, next));
        }
        Ok(format!("; {told}: {}", status.cost()))
    }

    /// What a lost domain costs, once the last of these drives are new members.
    fn check_new(&self, call: &Grow) -> Result<String, Unfit> {
        let kind = kind_in_words(self.record.kind);
        let each = format!("has failure domains of {} drives ({})", self.slots, kind.noun());
        let Some(own) = call.domains else {
            let what = format!("{each}: say which of the new drives fail together");
            let next = "add --domain WORD, or --domain NAME=DEVICE,DEVICE... for each new domain";
            return Err(Unfit { what, next });
        };
        if own.kind != kind && own.kind != DomainKind::List {
            let next = "group the new drives by the same --domain, or list them";
            return Err(Unfit { what: each, next });
        }
        if call.devices.len() != usize::from(own.count) * self.slots {
            let (drives, domains) = (call.devices.len(), own.count);
            let what = format!("{each}, and {drives} new drives in {domains} domains do not fit");
            return Err(Unfit { what, next: "add whole domains of that many drives" });
        }
        let status = self.status();
        if status.strips_lost > status.parity_strips && !call.other_domain {
            let cost = status.cost();
            let what = format!("would have drives of several domains in one place: {cost}");
            let next = "take drives of other domains, or say --other-domain";
            return Err(Unfit { what, next });
        }
        Ok(status.cost())
    }

    /// The name that most drives of a domain have.
    fn name(&self, domain: usize) -> Option<String> {
        let own: Vec<&String> =
            self.names[domain * self.slots..][..self.slots].iter().flatten().collect();
        let count = |name: &String| own.iter().filter(|other| **other == name).count();
        own.iter().rev().max_by_key(|name| count(name)).map(|name| (*name).clone())
    }

    fn range(&self, domain: usize) -> String {
        format!("slots {} to {}", domain * self.slots, (domain + 1) * self.slots - 1)
    }

    /// Failure domains of the layout that have a drive at a place.
    fn strips_at(&self, name: &String) -> usize {
        let here = self.names.iter().enumerate().filter(|(_, own)| own.as_ref() == Some(name));
        here.map(|(slot, _)| slot / self.domain_members).collect::<BTreeSet<_>>().len()
    }

    fn status(&self) -> FailureDomains {
        let worst = self.names.iter().flatten().map(|name| self.strips_at(name)).max();
        let strips = worst.unwrap_or(0).max(self.record.domains.into());
        FailureDomains {
            kind: kind_in_words(self.record.kind),
            strips_lost: convert::small(strips),
            parity_strips: convert::small(self.parity_strips),
            domains: (0..self.names.len() / self.slots).map(|at| self.domain(at)).collect(),
        }
    }

    fn domain(&self, at: usize) -> FailureDomain {
        let name = self.name(at);
        let slots = at * self.slots..(at + 1) * self.slots;
        let elsewhere = slots.clone().filter_map(|slot| {
            let own = self.names[slot].clone().filter(|own| Some(own) != name.as_ref())?;
            Some((convert::small(slot), own))
        });
        FailureDomain {
            elsewhere: elsewhere.collect(),
            slots: slots.map(convert::small).collect(),
            name,
        }
    }
}

#[cfg(test)]
mod tests;
