//! How large each area is, and how many rows fit a device.
//!
//! What must stay true: the areas are a function of the geometry with its rows and of the request
//! alone, never of the device. So every member of an array has the same head whatever its size. The
//! areas do not overlap. More rows never need less space, so the search for the most rows is exact.
//!
//! Sizes by default: the write-intent bitmap has at most 2^17 bits (20 KiB); the written map one
//! bit for each stripe of the array; the stripe intent log 1/256 of the data, 1 MiB to 128 MiB; the
//! checksum table, if there is one, two places for each page, 0.2 % of the member. Arrays without
//! one reserve 8 bytes per 4 KiB block for each parity strip (at least one, at most three of them).
//! Members with 8 GiB of data or more reserve 64 MiB for a later reshape.

use ashlar_units::{BLOCK_BYTES, Extent};

use crate::areas::{Areas, heartbeat_area, pages_bytes};
use crate::format::{
    AREA_ALIGN, BITS_PER_PAGE, CHECKSUMS_RESERVED_PER_PAGE, DATA_ALIGN, FIRST_AREA_OFFSET,
    HEAD_COPIES_BYTES, MEMBER_BYTES_MIN, TAIL_COPIES_BYTES, member_bytes,
};
use crate::geometry::GeometryRecord;

/// Most bits the write-intent bitmap has by default.
pub const INTENT_BITS_MAX: u64 = 1 << 17;
/// Smallest region by default, in bytes of the volume, unless one stripe is larger.
pub const REGION_BYTES_MIN: u64 = 1 << 20;
/// The region a volume of ordinary size gets, in bytes: large enough that a stream of writes marks
/// few regions a second, small enough that resyncing the dirty ones takes seconds.
pub const REGION_BYTES_USUAL: u64 = 64 << 20;
/// A volume has about this many regions before they grow beyond [`REGION_BYTES_MIN`].
pub const REGIONS_USUAL: u64 = 1024;
/// Most bits a write-intent bitmap can have when the region size is given.
pub const INTENT_BITS_LIMIT: u64 = 1 << 24;
/// Smallest stripe intent log by default, in bytes.
pub const LOG_BYTES_MIN: u64 = 1 << 20;
/// Largest stripe intent log by default, in bytes.
pub const LOG_BYTES_MAX: u64 = 128 << 20;
/// Largest stripe intent log that can be asked for, in bytes.
pub const LOG_BYTES_LIMIT: u64 = 1 << 40;
/// The log is this part of the data area by default.
pub const LOG_PART: u64 = 256;

/// Bytes that a member reserves for a later reshape.
pub const RESHAPE_BYTES: u64 = 64 << 20;
/// Bytes of data from which on a member reserves them: then they are less than one percent.
pub const RESHAPE_DATA_BYTES_MIN: u64 = 8 << 30;

/// How large the stripe intent log is to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LogReserve {
    /// 1/256 of the data area, at least 1 MiB and four strips, at most 128 MiB.
    #[default]
    Usual,
    /// No log, now and later.
    Nothing,
    /// This many bytes, rounded up to 4 KiB; at most [`LOG_BYTES_LIMIT`].
    Bytes(u64),
}

/// What the areas are to be planned for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AreaRequest {
    /// The geometry; its `rows` are ignored, they are what planning finds.
    pub geometry: GeometryRecord,
    /// Bytes of the volume per write-intent bit: a power of two of whole stripes. `None`: by size,
    /// see [`region_bytes_by_default`].
    pub region_bytes: Option<u64>,
    /// The stripe intent log.
    pub intent_log: LogReserve,
    /// Whether to reserve room for a checksum table that is not kept.
    pub checksum_table: bool,
    /// Whether a checksum table is kept: then it is as large as it has to be.
    pub keeps_checksums: bool,
    /// Whether to reserve room for a later reshape, on members that are large enough.
    pub reshape: bool,
    /// Places for each page of the written map: 2, or 1 as the first arrays had it.
    pub written_map_places: u64,
}

impl AreaRequest {
    /// Everything by default: log, checksum table and reshape reserved, region by size.
    pub fn new(geometry: GeometryRecord) -> Self {
        AreaRequest {
            geometry,
            region_bytes: None,
            intent_log: LogReserve::Usual,
            checksum_table: true,
            keeps_checksums: false,
            reshape: true,
            written_map_places: 2,
        }
    }
}

/// Why areas cannot be planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanFault {
    /// Not one row fits.
    #[error("{device_bytes} bytes are too small for a member: {least_bytes} are needed")]
    TooSmall {
        /// Size of the device.
        device_bytes: u64,
        /// Smallest device that would do.
        least_bytes: u64,
    },
    /// The region size given is not a power of two of whole stripes.
    #[error(
        "a region must be a power of two times {stripe_bytes} bytes (one stripe), \
         not {region_bytes}"
    )]
    Region {
        /// As given.
        region_bytes: u64,
        /// Bytes of the volume in one stripe.
        stripe_bytes: u64,
    },
    /// The region size given makes too many bits.
    #[error("regions of {region_bytes} bytes make {bits} bits, more than {INTENT_BITS_LIMIT}")]
    TooManyRegions {
        /// As given.
        region_bytes: u64,
        /// Regions of the volume.
        bits: u64,
    },
    /// The log size given is impossible.
    #[error("a stripe intent log of {bytes} bytes is more than {LOG_BYTES_LIMIT}")]
    Log {
        /// As given.
        bytes: u64,
    },
    /// The geometry is impossible.
    #[error("the geometry is impossible: {field}")]
    Geometry {
        /// Which number.
        field: &'static str,
    },
    /// No device was given.
    #[error("no device was given")]
    NoDevice,
}

/// Areas for a number of rows, and what they cost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AreaPlan {
    /// The geometry with its rows.
    pub geometry: GeometryRecord,
    /// Bytes of the volume per write-intent bit.
    pub region_bytes: u64,
    /// Bits of the write-intent bitmap in use.
    pub intent_bits: u64,
    /// Bits of the written map in use: one a stripe of the array.
    pub written_bits: u64,
    /// The areas on the device they were planned for.
    pub areas: Areas,
    /// Usable size of that device, in bytes.
    pub member_bytes: u64,
}

impl AreaPlan {
    /// The plan with the most rows that fit a device of `device_bytes` bytes; of a declustered
    /// array in whole slices.
    ///
    /// # Errors
    /// If not one row fits or the request is impossible.
    pub fn for_member(request: &AreaRequest, device_bytes: u64) -> Result<Self, PlanFault> {
        let usable = member_bytes(device_bytes);
        let unit = request.geometry.row_unit();
        let one = Self::for_rows(request, unit)?;
        if one.member_bytes > usable {
            return Err(PlanFault::TooSmall { device_bytes, least_bytes: one.member_bytes });
        }
        // `fits` is known to fit, `over` known not to. Both count units of rows.
        let (mut fits, mut under) = (one, 1);
        let mut over = usable / u64::from(request.geometry.strip_bytes) / unit + 1;
        while over - under > 1 {
            let middle = under + (over - under) / 2;
            match Self::for_rows(request, middle * unit) {
                Ok(plan) if plan.member_bytes <= usable => (fits, under) = (plan, middle),
                Ok(_) | Err(PlanFault::Geometry { field: "rows" }) => over = middle,
                Err(fault) => return Err(fault),
            }
        }
        Ok(fits.on_device(device_bytes))
    }

    /// The plan with the most rows that fit every one of these devices; to be moved to each with
    /// [`AreaPlan::on_device`].
    ///
    /// # Errors
    /// If not one row fits the smallest, the request is impossible, or there is no device.
    pub fn for_members(request: &AreaRequest, devices_bytes: &[u64]) -> Result<Self, PlanFault> {
        let least = devices_bytes.iter().min().ok_or(PlanFault::NoDevice)?;
        Self::for_member(request, *least)
    }

    /// The plan for exactly `rows` rows, on the smallest device that holds it.
    ///
    /// # Errors
    /// If the request is impossible.
    pub fn for_rows(request: &AreaRequest, rows: u64) -> Result<Self, PlanFault> {
        let geometry = GeometryRecord { rows, ..request.geometry };
        geometry.check().map_err(|field| PlanFault::Geometry { field })?;
        let region_bytes = region_for(request, &geometry)?;
        let intent_log_bytes = log_bytes(request, &geometry)?;
        let mut at = FIRST_AREA_OFFSET;
        let mut place = |bytes: u64| {
            let extent = Extent::new(at, bytes);
            at += bytes;
            extent
        };
        let write_intent = place(intent_area_bytes(request, &geometry));
        let map_bytes = pages_bytes(geometry.stripes(), BITS_PER_PAGE);
        let written_map = place(map_bytes * request.written_map_places);
        let intent_log = place(intent_log_bytes);
        let checksums = place(checksum_bytes(request, &geometry));
        let has_spares = geometry.spread.is_some_and(|spread| spread.spare_columns > 0);
        let spare_states = match has_spares {
            false => Extent::default(),
            true => place(geometry.spare_states_bytes()),
        };
        let reshape = match reshape_bytes(request, &geometry) {
            0 => Extent::default(),
            bytes => place(bytes),
        };
        let data = Extent::new(at.next_multiple_of(DATA_ALIGN), geometry.member_data_bytes());
        let member_bytes = (data.end() + TAIL_COPIES_BYTES).max(MEMBER_BYTES_MIN);
        let areas = Areas {
            head_copies: Extent::new(0, HEAD_COPIES_BYTES),
            tail_copies: Extent::new(member_bytes - TAIL_COPIES_BYTES, TAIL_COPIES_BYTES),
            heartbeat: heartbeat_area(),
            write_intent,
            written_map,
            intent_log,
            checksums,
            data,
            spare_states,
            reshape,
            grown_map: Extent::default(),
        };
        Ok(AreaPlan {
            geometry,
            region_bytes,
            intent_bits: geometry.volume_bytes().div_ceil(region_bytes),
            written_bits: geometry.stripes(),
            areas,
            member_bytes,
        })
    }

    /// The same plan on a device of `device_bytes` bytes, at least as large as the one it was made
    /// for.
    ///
    /// # Panics
    /// If the device is too small for the rows.
    #[must_use]
    pub fn on_device(self, device_bytes: u64) -> Self {
        let usable = member_bytes(device_bytes);
        let areas = self.areas.on_device(usable);
        assert!(areas.data.end() <= areas.tail_copies.offset, "the rows do not fit the device");
        AreaPlan { areas, member_bytes: usable, ..self }
    }

    /// Bytes of the member that hold no data.
    pub fn overhead_bytes(&self) -> u64 {
        self.member_bytes - self.areas.data.bytes
    }
}

/// Bytes of the volume per write-intent bit when nothing is asked for: a 1024th of the volume, at
/// least 1 MiB and at most 64 MiB, rounded up to a power of two of whole stripes; more if the
/// bitmap would exceed 2^17 bits.
pub fn region_bytes_by_default(geometry: &GeometryRecord) -> u64 {
    let volume = geometry.volume_bytes();
    let wanted = (volume / REGIONS_USUAL)
        .clamp(REGION_BYTES_MIN, REGION_BYTES_USUAL)
        .max(volume.div_ceil(INTENT_BITS_MAX));
    let stripe = geometry.stripe_data_bytes();
    stripe * wanted.div_ceil(stripe).next_power_of_two()
}

fn region_for(request: &AreaRequest, geometry: &GeometryRecord) -> Result<u64, PlanFault> {
    let Some(region_bytes) = request.region_bytes else {
        return Ok(region_bytes_by_default(geometry));
    };
    let stripe_bytes = geometry.stripe_data_bytes();
    if !region_bytes.is_multiple_of(stripe_bytes)
        || !(region_bytes / stripe_bytes).is_power_of_two()
    {
        return Err(PlanFault::Region { region_bytes, stripe_bytes });
    }
    let bits = geometry.volume_bytes().div_ceil(region_bytes);
    if bits > INTENT_BITS_LIMIT {
        return Err(PlanFault::TooManyRegions { region_bytes, bits });
    }
    Ok(region_bytes)
}

/// By default the area has room for regions of 1 MiB up to 2^17 of them: it must not shrink when
/// more rows make the region double.
fn intent_area_bytes(request: &AreaRequest, geometry: &GeometryRecord) -> u64 {
    let volume = geometry.volume_bytes();
    let bits = match request.region_bytes {
        Some(region_bytes) => volume.div_ceil(region_bytes),
        None => volume.div_ceil(REGION_BYTES_MIN).min(INTENT_BITS_MAX),
    };
    pages_bytes(bits, BITS_PER_PAGE)
}

fn log_bytes(request: &AreaRequest, geometry: &GeometryRecord) -> Result<u64, PlanFault> {
    let bytes = match request.intent_log {
        LogReserve::Nothing => 0,
        LogReserve::Bytes(bytes) if bytes > LOG_BYTES_LIMIT => {
            return Err(PlanFault::Log { bytes });
        }
        LogReserve::Bytes(bytes) => bytes,
        LogReserve::Usual => (geometry.member_data_bytes() / LOG_PART)
            .max(4 * u64::from(geometry.strip_bytes))
            .clamp(LOG_BYTES_MIN, LOG_BYTES_MAX),
    };
    Ok(bytes.next_multiple_of(AREA_ALIGN))
}

/// More rows never need less room, since it depends on the rows alone.
fn reshape_bytes(request: &AreaRequest, geometry: &GeometryRecord) -> u64 {
    let is_large = geometry.member_data_bytes() >= RESHAPE_DATA_BYTES_MIN;
    if request.reshape && is_large { RESHAPE_BYTES } else { 0 }
}

fn checksum_bytes(request: &AreaRequest, geometry: &GeometryRecord) -> u64 {
    if request.keeps_checksums {
        return crate::checksums::table_bytes(geometry);
    }
    if !request.checksum_table {
        return 0;
    }
    let copies = u64::from(geometry.parity_strips.clamp(1, 3));
    let blocks = geometry.member_data_bytes() / BLOCK_BYTES;
    pages_bytes(blocks * copies, CHECKSUMS_RESERVED_PER_PAGE)
}
