//! What a controller answers to Get Log Page.
//!
//! Base 2.0, 5.16 "Get Log Page command".

use super::state::{Answer, Controller, View};
use crate::Status;
use crate::command::GetLogPage;
use crate::identify::{ALL_NAMESPACES, ControllerKind};
use crate::log::{
    AnaState, ana_page, cut, discovery_page, effects_page, error_page, firmware_page, health_page,
    page, supported_pages,
};

/// Groups without their namespaces: bit 0 of LSP for the ANA page.
const ONLY_GROUPS: u8 = 1;

pub(super) fn answer(
    controller: &mut Controller,
    get: &GetLogPage,
    view: &View,
) -> Result<Answer, Status> {
    let facts = controller.facts();
    let pages: &[u8] = match facts.kind {
        ControllerKind::Io => &page::OF_IO,
        ControllerKind::Discovery => &page::OF_DISCOVERY,
    };
    if !pages.contains(&get.page) {
        return Err(Status::INVALID_LOG_PAGE);
    }
    // A power of 0 says that there is no limit, and only a test has none.
    let bytes_max = 4096_u64 << u32::from(facts.transfer_power_max.min(20));
    let bytes = usize::try_from(get.bytes).map_err(|_| Status::INVALID_FIELD)?;
    if get.bytes > bytes_max {
        return Err(Status::INVALID_FIELD);
    }
    let whole = match get.page {
        page::SUPPORTED => supported_pages(pages),
        page::ERROR => error_page(),
        page::HEALTH => health(get, view)?,
        page::FIRMWARE => firmware_page(&facts.firmware),
        page::CHANGED_NAMESPACES => controller.changed.page(),
        page::EFFECTS => effects_page(facts.kind),
        page::ANA => ana(get, view),
        page::DISCOVERY => discovery_page(view.discovery_generation, view.discovery),
        page::RESERVATION => controller.notices.page(),
        _ => return Err(Status::INVALID_LOG_PAGE),
    };
    let part = cut(&whole, get.offset, bytes).ok_or(Status::INVALID_FIELD)?;
    if !get.keeps_events {
        controller.was_read(get.page);
    }
    Ok(Answer::data(part))
}

fn health(get: &GetLogPage, view: &View) -> Result<Vec<u8>, Status> {
    let is_whole = matches!(get.namespace, 0 | ALL_NAMESPACES);
    if !is_whole && view.namespace(get.namespace).is_none() {
        return Err(Status::INVALID_NAMESPACE);
    }
    Ok(health_page(&view.health))
}

fn ana(get: &GetLogPage, view: &View) -> Vec<u8> {
    let ids: Vec<u32> = view.namespaces.iter().map(|it| it.id).collect();
    ana_page(AnaState::Optimized, 0, &ids, get.specific & ONLY_GROUPS != 0)
}

impl Controller {
    fn was_read(&mut self, read: u8) {
        match read {
            page::CHANGED_NAMESPACES => self.changed.clear(),
            page::RESERVATION => self.notices.pop(),
            _ => {}
        }
        self.events.page_was_read(read);
        // One page tells one notice, so that a host comes back for the others.
        if read == page::RESERVATION && !self.notices.is_empty() {
            self.events.happened(crate::events::Event::Reservation);
        }
    }
}
