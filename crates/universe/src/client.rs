//! Clients: they write what the ledger can tell apart, and hold every answer against it.
//!
//! What must stay true: a change is in the ledger before it is submitted, an answer after it came;
//! errors that the contract does not allow end the universe.

use crate::canary;
use crate::config::Profile;
use crate::ledger::{Begun, Change, Ending};
use crate::stage::Stage;
use ashlar_engine::ArrayVolume;
use ashlar_sim::Random;
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume, VolumeErrorKind};
use std::time::Duration;

/// No client writes it.
const POISON: u8 = 0xB6;

/// No request takes longer, whatever devices do: all of them stand still for about a minute at
/// most, and one alone is not waited for.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// So long after its answer a change is carried out once more by an export that is wrong.
const ECHO_AFTER: Duration = Duration::from_millis(20);

/// Who a client is.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub(crate) number: usize,
    pub(crate) profile: Profile,
    /// Requests that are left to later lives.
    pub(crate) floor: usize,
    pub(crate) life: u64,
}

/// A change that was submitted.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) begun: Begun,
    pub(crate) fua: bool,
    pub(crate) may_unmap: bool,
    /// The array lacked a member wherever it went.
    pub(crate) lacks: bool,
}

struct Client {
    volume: ArrayVolume,
    stage: Stage,
    random: Random,
    who: Who,
    /// Where a stream goes on, bytes of the window.
    stream_at: u64,
    /// A block of the stripe there is next.
    is_second: bool,
}

/// What to do next.
enum Step {
    Write { extent: Extent, fua: bool },
    Change { change: Change, extent: Extent },
    Read(Extent),
    Flush,
    Think,
}

/// The answer means that the array is going.
struct Gone;

/// Send `again` what was not answered in an earlier life; then make requests until there are none
/// left or the array stops.
pub(crate) async fn run(volume: ArrayVolume, stage: Stage, who: Who, again: Option<Sent>) {
    let _guard = stage.enter();
    let purpose = 0x1000 + who.life * 16 + u64::try_from(who.number).expect("few clients");
    let random = Random::stream(stage.config().seed, purpose);
    let mut client = Client { volume, stage, random, who, stream_at: 0, is_second: false };
    client.stream_at = client.whole_window().bytes / 16 * u64::try_from(who.number).expect("few");
    if let Some(sent) = again {
        let command = command(&client.volume, &client.stage, &sent).await;
        if client.send(sent, command).await.is_err() {
            return;
        }
        if canary::replay_echoes() {
            client.echo(sent);
        }
    }
    while client.stage.take_request(who.floor) {
        let step = client.draw();
        if client.take(step).await.is_err() {
            return;
        }
    }
}

impl Client {
    fn whole_window(&self) -> Extent {
        Extent::new(0, self.stage.config().window.1 * self.stage.config().stripe_bytes())
    }

    fn draw(&mut self) -> Step {
        let draw = self.random.below(100);
        match (self.who.profile, draw) {
            (Profile::Mixed, 0..45) => self.draw_write(),
            (Profile::Mixed, 45..78) => Step::Read(self.piece()),
            (Profile::Mixed, 78..83) => self.change(Change::Zeroes),
            (Profile::Mixed, 83..87) => self.change(Change::Discard),
            (Profile::Stream, 0..85) => self.stream(),
            (Profile::Stream, 85..90) => Step::Read(self.piece()),
            (Profile::Hot, 0..60) => Step::Write { extent: self.hot(), fua: draw < 3 },
            (Profile::Hot, 60..92) => Step::Read(self.hot()),
            (Profile::Reader, 0..85) => Step::Read(self.piece()),
            (Profile::Reader, 85..93) => self.draw_write(),
            (Profile::Large, 0..50) => Step::Write { extent: self.stripes(), fua: false },
            (Profile::Large, 50..60) => {
                Step::Change { change: Change::Discard, extent: self.stripes() }
            }
            (Profile::Large, 60..68) => {
                Step::Change { change: Change::Zeroes, extent: self.stripes() }
            }
            (Profile::Large, 68..90) => Step::Read(self.stripes()),
            (Profile::Pairs, 0..90) => self.pair(),
            (Profile::Blocks, 0..90) => {
                let blocks = self.whole_window().bytes / 4096;
                let extent = Extent::new(self.random.below(blocks) * 4096, 4096);
                Step::Write { extent, fua: false }
            }
            (Profile::Blocks, 90..95) => Step::Read(self.piece()),
            (_, ..98) => Step::Flush,
            _ => Step::Think,
        }
    }

    fn draw_write(&mut self) -> Step {
        Step::Write { extent: self.piece(), fua: self.random.percent(6) }
    }

    fn change(&mut self, change: Change) -> Step {
        let extent = if self.random.percent(40) { self.stripes() } else { self.piece() };
        Step::Change { change, extent }
    }

    /// Some blocks anywhere: few mostly, aligned to 4 KiB mostly.
    fn piece(&mut self) -> Extent {
        let config = self.stage.config();
        let (logical, window) = (u64::from(config.logical_block_bytes), self.whole_window().bytes);
        let stripe = config.stripe_bytes();
        let unit = if self.random.percent(25) { logical } else { 4096 };
        let most = if self.random.percent(25) { 2 * stripe } else { 8192 };
        let bytes = ((self.random.below(most.max(unit) / unit) + 1) * unit).min(window);
        let offset = self.random.below((window - bytes) / unit + 1) * unit;
        Extent::new(offset, bytes)
    }

    /// One of a few blocks.
    fn hot(&mut self) -> Extent {
        let block = self.random.below(4);
        let most = self.whole_window().bytes / 4096;
        let bytes = if self.random.percent(30) { 8192 } else { 4096 };
        Extent::new(block.min(most - 2) * 4096, bytes)
    }

    /// Whole stripes.
    fn stripes(&mut self) -> Extent {
        let (stripe, count) = (self.stage.config().stripe_bytes(), self.stage.config().window.1);
        let wanted = 1 + self.random.below(2);
        let first = self.random.below(count - wanted + 1);
        Extent::new(first * stripe, wanted * stripe)
    }

    /// A whole stripe, or a block of the one before.
    fn pair(&mut self) -> Step {
        let stripe = self.stage.config().stripe_bytes();
        let block = self.random.below(stripe / 4096) * 4096;
        let extent = match std::mem::take(&mut self.is_second) {
            true => Extent::new(self.stream_at + block, 4096),
            false => {
                self.is_second = true;
                self.stream_at = self.random.below(self.whole_window().bytes / stripe) * stripe;
                Extent::new(self.stream_at, stripe)
            }
        };
        Step::Write { extent, fua: false }
    }

    fn stream(&mut self) -> Step {
        let window = self.whole_window().bytes;
        let start = self.stream_at.next_multiple_of(4096) % window;
        let bytes = (4096 * (1 + self.random.below(2))).min(window - start);
        self.stream_at = (start + bytes) % window;
        Step::Write { extent: Extent::new(start, bytes), fua: false }
    }

    async fn take(&mut self, step: Step) -> Result<(), Gone> {
        let handle = self.volume.handle().clone();
        let began = handle.now();
        let taken = self.carry_out(step).await;
        let took = handle.now().since(began);
        if took > STUCK_AFTER {
            self.stage.fail(format!("a request was stuck for {took:?}"));
        }
        taken
    }

    async fn carry_out(&mut self, step: Step) -> Result<(), Gone> {
        match step {
            Step::Write { extent, fua } => self.write(extent, fua).await,
            Step::Change { change, extent } => self.zero(change, extent).await,
            Step::Read(extent) => self.read(extent).await,
            Step::Flush => self.flush().await,
            Step::Think => {
                let wait = Duration::from_micros(self.random.below(20_000));
                self.volume.handle().sleep(wait).await;
                Ok(())
            }
        }
    }

    async fn write(&mut self, extent: Extent, fua: bool) -> Result<(), Gone> {
        let mut buffer = self.volume.buffer(to_usize(extent.bytes)).await;
        let lacks = self.stage.lacks(extent);
        let begun = {
            let mut ledger = self.stage.ledger();
            let begun = ledger.begin_on(Change::Write, extent, (self.who.number, lacks));
            ledger.fill(begun, &mut buffer);
            begun
        };
        let sent = Sent { begun, fua, may_unmap: false, lacks };
        self.send(sent, Command::Write(buffer.freeze())).await
    }

    async fn zero(&mut self, change: Change, extent: Extent) -> Result<(), Gone> {
        let may_unmap = change != Change::Discard && self.random.percent(50);
        let begun = self.stage.ledger().begin(change, extent, self.who.number);
        let sent = Sent { begun, fua: false, may_unmap, lacks: false };
        let command = command(&self.volume, &self.stage, &sent).await;
        self.send(sent, command).await
    }

    /// Submit a change that is in the ledger, and wait for its answer.
    async fn send(&mut self, sent: Sent, command: Command) -> Result<(), Gone> {
        let Sent { begun, fua, lacks, .. } = sent;
        let (id, extent, change) = (begun.id.0, begun.extent, begun.change);
        self.stage.export().remember(self.who.number, sent);
        let with = if fua { " with FUA" } else { "" };
        self.stage.note(|| format!("{change:?} {id} at {extent}{with}"));
        let answer = self.ask(command, extent, fua).await;
        let ending = match (&answer, fua) {
            (Ok(_), true) => Ending::Durable,
            (Ok(_), false) => Ending::Done,
            (Err(_), _) => Ending::Failed,
        };
        self.stage.ledger().end(begun, ending);
        self.stage.export().forget(self.who.number);
        let was_rebuilt = || self.stage.was_rebuilt();
        if lacks
            && answer.is_ok()
            && self.stage.lacks(extent)
            && self.stage.ledger().planned_degraded(begun, was_rebuilt)
        {
            self.stage.mark("uncertain.ended_by_a_write");
        }
        self.stage.note(|| format!("{change:?} {id} {ending:?}"));
        self.judge(answer.map(drop), &format!("{change:?} {id} at {extent}"))
    }

    /// Carry a change out once more, after what came since its answer; nobody waits for it.
    fn echo(&self, sent: Sent) {
        let (volume, stage, guard) = (self.volume.clone(), self.stage.clone(), self.stage.enter());
        self.volume.handle().spawn(async move {
            let _guard = guard;
            volume.handle().sleep(ECHO_AFTER).await;
            let command = command(&volume, &stage, &sent).await;
            let request =
                Request { command, extent: stage.place(sent.begun.extent), fua: sent.fua };
            let _nobody_waits = volume.submit(request).await;
        });
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        let begun = self.stage.ledger().tick();
        self.stage.note(|| "flush".to_owned());
        let answer = self.ask(Command::Flush, Extent::default(), false).await;
        if answer.is_ok() {
            self.stage.ledger().flushed(begun);
            self.stage.note(|| format!("flush of {begun} done"));
        }
        self.judge(answer.map(drop), "flush")
    }

    async fn read(&mut self, extent: Extent) -> Result<(), Gone> {
        let answer = read(&self.volume, &self.stage, extent).await;
        self.judge(answer, &format!("read at {extent}"))
    }

    async fn ask(
        &self,
        command: Command,
        extent: Extent,
        fua: bool,
    ) -> Result<Reply, VolumeErrorKind> {
        let request = Request { command, extent: self.stage.place(extent), fua };
        self.volume.submit(request).await.map_err(|error| error.kind)
    }

    fn judge(&self, answer: Result<(), VolumeErrorKind>, what: &str) -> Result<(), Gone> {
        match answer {
            Ok(()) => Ok(()),
            Err(VolumeErrorKind::Stopped) => Err(Gone),
            Err(_) if self.stage.errors_are_allowed() => {
                self.stage.mark("client.error_within_contract");
                Ok(())
            }
            Err(kind) => self.stage.fail(format!("{what}: answered {kind:?} within the budget")),
        }
    }
}

/// The operator writes a place anew, as from a copy.
pub(crate) async fn restore(volume: &ArrayVolume, stage: &Stage, extent: Extent) {
    let begun = stage.ledger().begin(Change::Write, extent, 0);
    let sent = Sent { begun, fua: false, may_unmap: false, lacks: false };
    let command = command(volume, stage, &sent).await;
    let answer = volume.submit(Request { command, extent: stage.place(extent), fua: false }).await;
    if let Err(error) = answer {
        stage.fail(format!("what is lost at {extent} cannot be written anew: {:?}", error.kind));
    }
    stage.ledger().end(begun, Ending::Done);
}

/// What a change that was submitted asks for.
async fn command(volume: &ArrayVolume, stage: &Stage, sent: &Sent) -> Command {
    let extent = sent.begun.extent;
    match sent.begun.change {
        Change::Discard => Command::Discard,
        Change::Zeroes => Command::WriteZeroes { may_unmap: sent.may_unmap },
        Change::Write => {
            let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
            stage.ledger().fill(sent.begun, &mut buffer);
            Command::Write(buffer.freeze())
        }
    }
}

/// Read and hold what came against the ledger.
///
/// # Errors
/// What the volume answered.
pub(crate) async fn read(
    volume: &ArrayVolume,
    stage: &Stage,
    extent: Extent,
) -> Result<(), VolumeErrorKind> {
    let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
    // What lay in the buffer must not come back as data.
    buffer.fill(POISON);
    let begun = stage.ledger().begin_read();
    let knew_at_begin = stage.knows_of_half_written();
    let place = stage.place(extent);
    let request = Request { command: Command::Read(buffer), extent: place, fua: false };
    let buffer = match volume.submit(request).await {
        Ok(Reply::Data(buffer)) => buffer,
        Ok(Reply::Done) => stage.fail("a read was answered without data"),
        Err(error) => {
            stage.ledger().end_read(begun);
            return Err(error.kind);
        }
    };
    // Whole units only: a unit may be larger than what was asked for.
    let observed = match knew_at_begin && stage.knows_of_half_written() {
        true => stage.ledger().observe(begun, extent, &buffer),
        false => stage.ledger().observe_crossing(begun, extent, &buffer),
    };
    if let Err(wrong) = observed {
        let unit = stage.config().unit_bytes;
        let at = stage.place(Extent::new(wrong.unit * unit, unit)).offset;
        let stripe = at / stage.config().stripe_bytes();
        stage.fail(format!(
            "a read at {extent} (volume {place}): at byte {at}, stripe {stripe}, {wrong}"
        ));
    }
    Ok(())
}
