//! Dry runs and starts of whatever is on the devices, compared with each other.
//!
//! What must stay true: a dry run changes nothing and ends as the start does, in the same state or
//! in the same words. A refusal names a way to go on, and an option that it names gets further. Not
//! here: the required outcome of a start (`abuse`, `life`).

use crate::abuse::Abuses;
use crate::early::Early;
use crate::life::engine;
use ashlar_engine::{ArrayState, AssembleSpec, Refusal};
use ashlar_ondisk::assembly::AssemblyRequest;
use ashlar_sim::Stop;

/// What an option asks for.
type Asked = fn(&mut AssemblyRequest) -> &mut bool;

/// Options that a refusal may name.
const OPTIONS: [(&str, Asked); 3] = [
    ("--accept-dirty-degraded", |request| &mut request.accept_dirty_degraded),
    ("--accept-lost-map", |request| &mut request.accept_lost_map),
    ("--accept-serials", |request| &mut request.accept_serials),
];

/// What a refusal tells to do, where no option helps.
const WAYS: [&str; 5] =
    ["attach", "ashlar salvage", "assemble again", "examine", "the program that wrote it"];

impl Abuses<'_> {
    /// Dry run and start, again and again with what the refusal names. The devices are as the last
    /// start leaves them.
    pub(crate) fn rehearse(&mut self) {
        let mut request = AssemblyRequest::default();
        for _ in 0..=OPTIONS.len() {
            let Err(refusal) = self.both(&request) else {
                self.stage.mark("rehearsal.started");
                return;
            };
            let text = refusal.to_string();
            self.stage.say(|| format!("refused by dry run and start alike: {text}"));
            let named = OPTIONS.iter().filter(|(option, _)| text.contains(option));
            let mut is_further = false;
            for (option, asked) in named {
                if std::mem::replace(asked(&mut request), true) {
                    self.stage.fail(format!("{option} is named and does not help: {text}"));
                }
                is_further = true;
            }
            if !is_further {
                if !WAYS.iter().any(|way| text.contains(way)) {
                    self.stage.fail(format!("a refusal names no way to go on: {text}"));
                }
                self.stage.mark("rehearsal.refused");
                return;
            }
            self.stage.mark("rehearsal.option_named");
        }
        self.stage.fail("every refusal names another option");
    }

    /// Both, and whether they agree. True: the array is only read.
    fn both(&mut self, request: &AssemblyRequest) -> Result<bool, Refusal> {
        let changes = |abuses: &Self| -> Vec<u64> {
            abuses.drive_slots.all.iter().map(|drive_slot| drive_slot.disk.changes()).collect()
        };
        let before = changes(self);
        let devices = self.drive_slots.names();
        let spec = AssembleSpec { devices, request: *request, ..AssembleSpec::default() };
        let (opener, stage, asked) = (self.world.opener(), self.stage.clone(), spec.clone());
        let would = self.world.run(async move |handle| {
            let engine = engine(opener, &handle, &stage);
            let early = Early::begin(&engine, &stage, true);
            let would = engine.would_assemble(asked).await.map(|would| would.is_read_only);
            early.end();
            would
        });
        let would = would.done();
        if changes(self) != before {
            self.stage.fail("a dry run changed a device");
        }
        self.world.stop(Stop::Kill);
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let did = self.world.run(async move |handle| {
            let engine = engine(opener, &handle, &stage);
            engine.assemble(spec).await?;
            let status = engine.status().await?;
            Ok(status.arrays.iter().any(|array| array.state == ArrayState::ReadOnly))
        });
        let did = did.done();
        self.world.stop(Stop::Kill);
        match (&would, &did) {
            (Ok(would), Ok(did)) if would == did => {}
            (Err(would), Err(did)) if would == did => {
                if changes(self) != before {
                    self.stage.fail("a start that was refused changed a device");
                }
            }
            _ => self.stage.fail(format!("the dry run says {would:?}, the start {did:?}")),
        }
        did
    }
}
