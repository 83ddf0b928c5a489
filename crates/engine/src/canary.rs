//! Faults planted on purpose, one line each at their place. A test that does not find them proves
//! nothing.
//!
//! What must stay true: without the feature `canaries` every question here is a constant `false`,
//! and the compiler removes both. No program that ships has the feature. With it, at most one
//! canary is active on a thread at a time, so that universes on other threads are not disturbed.

macro_rules! canaries {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The faults.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Canary { $($(#[$doc])* $name),* }

        #[cfg(feature = "canaries")]
        impl Canary {
            /// Every canary.
            pub const ALL: &[Canary] = &[$(Canary::$name),*];
        }
    };
}

canaries! {
    /// A flush is answered without flushing the members.
    FlushSkipped,
    /// FUA is taken for an ordinary write.
    FuaIgnored,
    /// A write is answered while it is still under way.
    AnsweredBeforeStored,
    /// A region counts as marked although no member has the mark.
    IntentSkipped,
    /// Idle regions are called clean without a flush.
    SweptUnflushed,
    /// A start treats a member that is recorded as out as current.
    StaleMemberTrusted,
    /// A member goes out and the others are not told.
    TakeOutNotRecorded,
    /// Members are out that only an update says which did not reach all others.
    UpdateCutOffTrusted,
    /// A write that failed on a member counts as stored.
    FailedWriteIgnored,
    /// Members are put out one after the other when none of them has room.
    FullMembersPutOut,
    /// What met no room counts as stored when it is to be tried again.
    NoRoomForgotten,
    /// A member that was truncated and extended again counts as intact.
    CutShortTrusted,
    /// A repair is written to a device that became smaller, which makes it grow.
    ShorterMemberRepaired,
    /// A reconstructed block has a wrong bit.
    WrongDecode,
    /// Data is stored, parity is not.
    ParityNotStored,
    /// The first write of a stripe leaves what lay beside it.
    OldContentLeft,
    /// The rows of a write are shared with others.
    RowsShared,
    /// The checkpoint of a job counts stripes that are under way as done.
    CheckpointAhead,
    /// A job that visits regions side by side counts as if it went from stripe to stripe.
    RegionsCountedEarly,
    /// Of members that are rebuilt together the last one is not written.
    RebuiltTogetherLastLeft,
    /// A device that is being filled is read as if it were whole.
    RebuiltTooSoon,
    /// A resync looks and writes nothing.
    ResyncIdle,
    /// Parity is trusted where a resync has not been.
    UnsyncedTrusted,
    /// A member that comes back is taken as it is.
    ReAddVisitsNothing,
    /// The device that is to replace a member misses what clients write.
    ReplacementMissesWrites,
    /// The written map is not read at a start: nothing was ever written.
    WrittenMapForgotten,
    /// A trim is forgotten by the flush that follows.
    TrimNotStored,
    /// A start does not bring members to one generation first.
    CatchUpSkipped,
    /// What a start without a slot's own device says of it is written to the one that was to
    /// replace it.
    IdentityMixed,
    /// Writes go in place while their records are still on their way.
    RecordNotAwaited,
    /// Records are not forced to the media.
    RecordNotForced,
    /// Log space is used again though what it was for is only in caches.
    SpaceReusedUnflushed,
    /// Repairs are not logged.
    RepairNotLogged,
    /// Whole stripes are relaxed on arrays that lack members, too.
    RelaxedWhileDegraded,
    /// The first write of a stripe does not wait until it is durably unwritten.
    FirstWriteTooSoon,
    /// On a degraded array parity may rest on whole stripes that only caches hold.
    DegradedPlanUnsettled,
    /// A batch counts though its end was not written: records without their blocks.
    TornBatchTaken,
    /// A start forgets one write of what it rolls forward.
    ReplaySkipsOne,
    /// A start reads the records of the start before the last.
    OldIncarnationReplayed,
    /// A start keeps the incarnation of the last, so that records that are done with still count.
    IncarnationKept,
    /// A start rolls forward before it has recorded the missing members.
    ReplayBeforeLossRecorded,
    /// A start leaves rows in doubt as they are.
    DoubtLeft,
    /// A start ends the validity of the logs before what it rolled forward is flushed.
    ReplayNotFlushed,
    /// Devices are taken to write blocks whole, whatever was said of them.
    ParityOnlyUnstated,
    /// Parity of a parity-only update goes in place together with its block.
    ParityOnlyParityTooSoon,
    /// Updates are parity-only although an older full record of their stripe counts.
    ParityOnlyOverCopies,
    /// A start takes the block of a parity-only update for the new one.
    ParityOnlyBlockNotAsked,
    /// A block of a parity-only update that is neither what it was nor what it was to be is not
    /// computed anew.
    ParityOnlyLostLeft,
    /// Pages of the written map that a crash left different stay so.
    MapNotSettled,
    /// Changes of the written map are not put into kept memory.
    KeptMapForgotten,
    /// A write is answered before its bit is in kept memory.
    KeptTooLate,
    /// A start begins its kept map without what the one before had.
    KeptNotCarriedOver,
    /// A start believes a kept map of another start.
    KeptStaleBelieved,
    /// A start believes a kept map of changes that its members never had.
    KeptNewerBelieved,
    /// The claim of a start goes on without what slow devices say.
    ClaimImpatient,
    /// What a client reads straight from a member is not held against its checksums.
    ReadUnverified,
    /// What is read for a write, a decode or a job is not held against its checksums.
    GatherUnverified,
    /// A block that follows from the others of its row is healed, and not stored.
    HealedNotStored,
    /// A decoded block is stored though nothing proves it.
    StoredUnproven,
    /// The address is no part of a block's checksum.
    AddressLeftOut,
    /// What the checksums and the rest of a row in doubt prove is not put back.
    ProvenNotPutBack,
    /// A device that joins does not get the write-intent bits of the others.
    JoiningDeviceNotTold,
    /// What is under way on a device that leaves its slot is not asked of the one that has it next.
    SuccessorNotAsked,
    /// A copy that ends late speaks of the device that came next in its slot.
    CopySpeaksOn,
    /// An older copy of a member is taken for the member.
    OlderCopyTrusted,
    /// What is proven while a member is on its way out counts as if that had it.
    ProvenWithoutFailing,
    /// A drive that was away between a kill and the next start is taken as it is.
    AwayBelieved,
    /// On the boot of the last runner the exclusive opening is taken for a fence, whatever it is an
    /// opening of.
    SameBootTrusted,
    /// An array that had failed is stopped as if it had not.
    FailedCalledClean,
    /// Changed pages of the checksum table stay in memory.
    SumsNotStored,
    /// What is written while a cell is copied back goes to its spare only.
    SpareCopyMissesWrites,
    /// A cell counts as rebuilt before its content is flushed and its state is on the members.
    CellFlippedUnrecorded,
    /// Cells of a member that comes back are trusted, whatever was written meanwhile.
    DirtyCellsTrusted,
    /// Its spare cells are trusted as well, though no bitmap speaks of them.
    SpareCellsTrusted,
    /// Moving cells are read in their new places before the members say where the frontier is.
    MovedUnrecorded,
    /// What is written while a cell moves goes to its old place only.
    MovingCellMissesWrites,
    /// In an array that grows, jobs visit the stripes that the map of its creation gives a slot.
    GrowthLeftOut,
    /// A member is whole although its spare cells are not back.
    HostedCellsForgotten,
    /// Nobody acts when a member does not answer.
    SilenceNotWatched,
    /// Clients get to an array while it is being started, or is only looked at.
    ClientsLetInEarly,
}

#[cfg(feature = "canaries")]
impl Canary {
    /// Those that tests of the engine find, each with a situation made for it; universes must find
    /// all others.
    pub const STAGED: &[Canary] = &[
        Canary::SweptUnflushed,
        Canary::ShorterMemberRepaired,
        Canary::UpdateCutOffTrusted,
        Canary::RebuiltTogetherLastLeft,
        Canary::CatchUpSkipped,
        Canary::ReplayBeforeLossRecorded,
        Canary::SuccessorNotAsked,
        Canary::CopySpeaksOn,
        Canary::AwayBelieved,
        Canary::ProvenWithoutFailing,
    ];
}

/// Where this program is to panic: `start of NAME` and the like. Only in programs that are built
/// for tests.
#[cfg(debug_assertions)]
static PANIC_AT: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Have this process panic there, from now on.
#[cfg(debug_assertions)]
pub fn plant_panic(place: String) {
    // Once is enough for a test.
    let _planted = PANIC_AT.set(place);
}

/// Panics if a test wants it at this step of this array.
#[cfg(debug_assertions)]
pub(crate) fn panic_if_planted(step: &str, array: &str) {
    let is_it = |place: &String| place.split_once(" of ") == Some((step, array));
    assert!(!PANIC_AT.get().is_some_and(is_it), "planted: {step} of {array}");
}

/// Never in a program that ships.
#[cfg(not(debug_assertions))]
pub(crate) const fn panic_if_planted(_: &str, _: &str) {}

#[cfg(feature = "canaries")]
thread_local! {
    static SINGING: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// Let one sing on this thread from now on, or none.
#[cfg(feature = "canaries")]
pub fn set_canary(canary: Option<Canary>) {
    SINGING.set(canary);
}

/// Whether the engine is to be wrong here.
#[cfg(feature = "canaries")]
pub(crate) fn sings(canary: Canary) -> bool {
    SINGING.get() == Some(canary)
}

/// Whether the engine is to be wrong here: never.
#[cfg(not(feature = "canaries"))]
pub(crate) const fn sings(_: Canary) -> bool {
    false
}
