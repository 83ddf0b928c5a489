//! What a controller answers to Identify.
//!
//! Base 2.0, 5.17 "Identify command".

use super::state::{Answer, Controller, View};
use crate::Status;
use crate::command::{DSM_RANGES_MAX, Identify};
use crate::identify::{
    ALL_NAMESPACES, ControllerKind, IdentifyController, IdentifyNamespace, NVM_COMMAND_SET,
    NamespaceFacts, STRUCTURE_BYTES, active_list, command_set_list, controller_list, descriptors,
    identify_independent_namespace, identify_nvm_controller, identify_nvm_namespace, structure,
};
use zerocopy::IntoBytes;

/// Write Zeroes moves no data, so it takes more than other commands: 65,536 blocks of 512 bytes.
const ZEROES_POWER_MAX: u8 = 13;

pub(super) fn answer(
    controller: &Controller,
    identify: &Identify,
    view: &View,
) -> Result<Answer, Status> {
    let facts = controller.facts();
    if identify.structure == structure::CONTROLLER {
        return Ok(Answer::data(IdentifyController::new(facts).as_bytes().to_vec()));
    }
    if facts.kind == ControllerKind::Discovery {
        return Err(Status::INVALID_FIELD);
    }
    of_io(controller, identify, view).map(|structure| Answer::data(structure.to_vec()))
}

fn of_io(
    controller: &Controller,
    identify: &Identify,
    view: &View,
) -> Result<[u8; STRUCTURE_BYTES], Status> {
    let asked = Asked { controller, identify, view };
    let ids = || view.namespaces.iter().map(|it| it.id);
    let controllers = || view.controllers.iter().copied();
    match identify.structure {
        structure::NAMESPACE | structure::ALLOCATED_NAMESPACE => asked.namespace_structure(),
        structure::ACTIVE_LIST | structure::ALLOCATED_LIST => {
            asked.check_after()?;
            Ok(active_list(ids(), identify.namespace))
        }
        structure::SPECIFIC_ACTIVE_LIST => {
            asked.check_command_set()?;
            asked.check_after()?;
            Ok(active_list(ids(), identify.namespace))
        }
        structure::DESCRIPTORS => Ok(descriptors(asked.namespace()?)),
        structure::SPECIFIC_NAMESPACE => {
            asked.check_command_set()?;
            asked.namespace()?;
            Ok(identify_nvm_namespace())
        }
        structure::SPECIFIC_CONTROLLER => {
            asked.check_command_set()?;
            Ok(identify_nvm_controller(ZEROES_POWER_MAX, DSM_RANGES_MAX))
        }
        structure::INDEPENDENT_NAMESPACE => Ok(identify_independent_namespace(asked.namespace()?)),
        structure::NAMESPACE_CONTROLLERS => {
            asked.namespace()?;
            Ok(controller_list(controllers(), identify.controller))
        }
        structure::CONTROLLERS => Ok(controller_list(controllers(), identify.controller)),
        structure::COMMAND_SETS => Ok(command_set_list()),
        _ => Err(Status::INVALID_FIELD),
    }
}

struct Asked<'a> {
    controller: &'a Controller,
    identify: &'a Identify,
    view: &'a View<'a>,
}

impl Asked<'_> {
    /// The namespace that is asked for.
    fn namespace(&self) -> Result<&NamespaceFacts, Status> {
        self.view.namespace(self.identify.namespace).ok_or(Status::INVALID_NAMESPACE)
    }

    /// Of a namespace that may exist and does not, the structure is all zeros.
    fn namespace_structure(&self) -> Result<[u8; STRUCTURE_BYTES], Status> {
        let id = self.identify.namespace;
        let found = self.view.namespace(id).map(IdentifyNamespace::new);
        let may_exist = (1..=self.controller.facts().namespaces_max).contains(&id);
        let found = found.or_else(|| may_exist.then(IdentifyNamespace::inactive));
        let mut bytes = [0; STRUCTURE_BYTES];
        bytes.copy_from_slice(found.ok_or(Status::INVALID_NAMESPACE)?.as_bytes());
        Ok(bytes)
    }

    fn check_command_set(&self) -> Result<(), Status> {
        let is_ours = self.identify.command_set == NVM_COMMAND_SET;
        if is_ours { Ok(()) } else { Err(Status::INVALID_FIELD) }
    }

    /// A list begins behind a namespace that may exist.
    fn check_after(&self) -> Result<(), Status> {
        let is_good = self.identify.namespace < ALL_NAMESPACES - 1;
        if is_good { Ok(()) } else { Err(Status::INVALID_NAMESPACE) }
    }
}
