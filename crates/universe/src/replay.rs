//! The export of a universe: what it remembers of the changes under way, and that they are sent
//! again to the next life of a killed program, as the kernel does for ublk and FUSE, and the
//! in-flight memory for vhost-user.
//!
//! What must stay true: a change is remembered before it is submitted, and forgotten when it is
//! answered; a kill keeps what is remembered, and a power cut takes the export's clients along;
//! what is sent again is submitted before anything new begins.

use crate::client::Sent;
use crate::ledger::Change;
use crate::stage::Stage;
use ashlar_sim::Stop;
use std::collections::BTreeMap;

/// Changes under way, by client: each has one at a time.
#[derive(Clone, Default)]
pub(crate) struct Export(BTreeMap<usize, Sent>);

impl Export {
    /// A client submits this.
    pub(crate) fn remember(&mut self, client: usize, sent: Sent) {
        self.0.insert(client, sent);
    }

    /// It was answered.
    pub(crate) fn forget(&mut self, client: usize) {
        self.0.remove(&client);
    }

    /// The program has ended.
    pub(crate) fn ended(&mut self, stop: Stop) {
        if stop != Stop::Kill {
            self.0.clear();
        }
    }
}

/// Clients begin: what each of them must send again.
pub(crate) fn resume(stage: &Stage) -> BTreeMap<usize, Sent> {
    let mut export = stage.export();
    for sent in export.0.values_mut() {
        stage.mark("export.sent_again");
        sent.lacks = sent.begun.change == Change::Write && stage.lacks(sent.begun.extent);
        sent.begun = stage.ledger().resume(sent.begun, sent.lacks);
    }
    export.0.clone()
}
