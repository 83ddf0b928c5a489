//! Lists that requests of one array use again on one worker, so that a warm request allocates none.

use crate::in_flight::{GatherRead, ReadPart, StoreWrite};
use crate::lists::Lists;
use crate::log::update::Piece;
use crate::rows::StripRows;
use crate::stripe::work::Answer;
use ashlar_iobuf::Buf;
use ashlar_ring::Pending;

/// The supplies of lists.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) rows: Lists<StripRows>,
    pub(crate) reads: Lists<GatherRead>,
    pub(crate) writes: Lists<StoreWrite>,
    pub(crate) parts: Lists<ReadPart>,
    pub(crate) pieces: Lists<Piece>,
    pub(crate) strips: Lists<Buf>,
    pub(crate) answers: Lists<Pending<Answer>>,
}
