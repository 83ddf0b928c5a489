//! The limits that a device reports: pure.
//!
//! What must stay true: every reported limit is true. A file system that uses it (mkfs.xfs takes
//! stripe unit and width from here) fits the array. The driver knows sizes of requests as powers of
//! two only. For a stripe of another size, the strip is reported as the best size.

use crate::wire::{PARAMETERS_BYTES, Parameters, attribute, parameter};
use ashlar_units::SECTOR_BYTES;
use ashlar_volume::VolumeFacts;

/// Longest discard and longest write of zeros, in bytes: a request takes the time of so much.
const WITHOUT_DATA_BYTES_MAX: u64 = 1 << 30;

/// The parameters of a device for this volume.
///
/// # Panics
/// If its blocks are not powers of two.
pub fn parameters(facts: &VolumeFacts) -> Parameters {
    let mut attributes = attribute::VOLATILE_CACHE | attribute::FUA;
    if facts.read_only {
        attributes |= attribute::READ_ONLY;
    }
    if facts.is_rotational {
        attributes |= attribute::ROTATIONAL;
    }
    let strip = usable(facts.strip_bytes, facts.physical_block_bytes);
    let stripe = usable(facts.optimal_bytes, strip);
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).expect("a few GiB");
    Parameters {
        bytes: PARAMETERS_BYTES,
        parts: parameter::BASIC | parameter::DISCARD,
        attributes,
        logical_shift: shift(facts.logical_block_bytes),
        physical_shift: shift(facts.physical_block_bytes),
        optimal_shift: shift(stripe),
        minimum_shift: shift(strip),
        sectors_max: sectors(u64::from(facts.request_bytes_max)),
        device_sectors: facts.size_bytes / SECTOR_BYTES,
        discard_granularity: facts.optimal_bytes,
        discard_sectors_max: sectors(WITHOUT_DATA_BYTES_MAX),
        zeroes_sectors_max: sectors(WITHOUT_DATA_BYTES_MAX),
        discard_extents_max: 1,
        ..Parameters::default()
    }
}

/// Why a device that is like `had` cannot be served by this volume: one line. Its users know it as
/// it is, and a driver's device does not change.
pub fn misfit(had: &Parameters, facts: &VolumeFacts) -> Option<&'static str> {
    let now = parameters(facts);
    let is_writable = |it: &Parameters| it.attributes & attribute::READ_ONLY == 0;
    let longest = |it: &Parameters| it.discard_sectors_max.max(it.zeroes_sectors_max);
    match () {
        () if had.device_sectors > now.device_sectors => Some("the volume is smaller than it"),
        () if had.logical_shift < now.logical_shift => Some("the volume has larger blocks"),
        () if had.sectors_max > now.sectors_max || longest(had) > longest(&now) => {
            Some("its requests are too long")
        }
        () if is_writable(had) && !is_writable(&now) => {
            Some("it is for writing, and the array runs read-only")
        }
        () => None,
    }
}

/// `bytes` if the driver can say so, else `instead`.
fn usable(bytes: u32, instead: u32) -> u32 {
    if bytes.is_power_of_two() && bytes >= instead { bytes } else { instead }
}

fn shift(bytes: u32) -> u8 {
    assert!(bytes.is_power_of_two(), "{bytes} is no power of two");
    u8::try_from(bytes.trailing_zeros()).expect("at most 31")
}

#[cfg(test)]
mod tests {
    use super::{misfit, parameters};
    use crate::wire::attribute;
    use ashlar_volume::{MemVolume, Volume, VolumeFacts};

    fn facts() -> VolumeFacts {
        VolumeFacts {
            logical_block_bytes: 4096,
            physical_block_bytes: 4096,
            strip_bytes: 64 << 10,
            optimal_bytes: 512 << 10,
            request_bytes_max: 1 << 20,
            ..MemVolume::new("disk", 1 << 30).facts()
        }
    }

    #[test]
    fn strip_and_stripe_are_told() {
        let told = parameters(&facts());
        assert_eq!((told.logical_shift, told.physical_shift), (12, 12));
        assert_eq!((told.minimum_shift, told.optimal_shift), (16, 19));
        assert_eq!((told.device_sectors, told.sectors_max), (1 << 21, 2048));
        assert_eq!((told.discard_granularity, told.discard_extents_max), (512 << 10, 1));
        assert_eq!(told.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
    }

    #[test]
    fn a_device_is_served_by_a_volume_that_can_do_what_its_users_were_told() {
        let had = parameters(&facts());
        let with = |change: fn(&mut VolumeFacts)| {
            let mut facts = facts();
            change(&mut facts);
            misfit(&had, &facts)
        };
        assert_eq!(with(|_| {}), None);
        assert_eq!(with(|it| it.size_bytes *= 2), None, "it grew");
        assert_eq!(with(|it| it.logical_block_bytes = 512), None);
        assert_eq!(with(|it| it.size_bytes -= 4096), Some("the volume is smaller than it"));
        assert_eq!(with(|it| it.request_bytes_max /= 2), Some("its requests are too long"));
        let read_only = Some("it is for writing, and the array runs read-only");
        assert_eq!(with(|it| it.read_only = true), read_only);
        let had = parameters(&VolumeFacts { read_only: true, ..facts() });
        assert_eq!(misfit(&had, &facts()), None);
        let had = parameters(&VolumeFacts { logical_block_bytes: 512, ..facts() });
        assert_eq!(misfit(&had, &facts()), Some("the volume has larger blocks"));
    }

    #[test]
    fn a_stripe_of_another_size_than_a_power_of_two_is_not_told() {
        let told = parameters(&VolumeFacts { optimal_bytes: 7 * 65_536, ..facts() });
        assert_eq!((told.minimum_shift, told.optimal_shift), (16, 16));
        assert_eq!(told.discard_granularity, 7 * 65_536);
    }

    #[test]
    fn what_cannot_be_written_and_what_turns_is_told() {
        let told = parameters(&VolumeFacts { read_only: true, is_rotational: true, ..facts() });
        let more = attribute::READ_ONLY | attribute::ROTATIONAL;
        assert_eq!(told.attributes, attribute::VOLATILE_CACHE | attribute::FUA | more);
    }
}
