//! One core: an executor, a pool of payload buffers, and this worker's share of every array.
//!
//! What must stay true: only its own thread touches a worker's state. Other workers reach it
//! through its mailbox. Work on a stripe runs on the stripe's owner, in one of a bounded number of
//! stripe tasks. These start when pieces first need them, and stay. When all are busy, pieces wait
//! in line. Nothing here blocks the thread.
//!
//! - here       the worker, and messages between workers
//! - `pieces`   pieces of stripe work in line, and the tasks that do them

pub(crate) mod pieces;

use crate::array::ArrayId;
use crate::config::{LARGE_MIN, MIDDLE_BYTES, REQUEST_BYTES_MAX};
use crate::entrance::Entrance;
use crate::local_array::LocalArray;
use crate::metrics::Counter;
use crate::stripe::work::{Answer, StripeWork};
use ashlar_device::Outcome;
use ashlar_iobuf::{Buf, BufMut, Pool, PoolClass};
use ashlar_ring::mailbox::{Receiver, Sender};
use ashlar_ring::{Completion, Completions, Handle, Pending};
use ashlar_units::BLOCK_BYTES_USIZE;
use ashlar_volume::VolumeErrorKind;
use pieces::{Pieces, Seat};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Stripes that one worker has in flight at most.
const STRIPE_TASKS: usize = 256;
/// Longest write that is not whole blocks, with the rest of its blocks, bytes.
const WIDE_BYTES_MAX: usize = REQUEST_BYTES_MAX + 2 * BLOCK_BYTES_USIZE;
/// As many writes of more than two blocks are made whole at once on one worker; shorter ones never
/// wait.
const WIDE_COUNT: usize = 4;

/// Something to be run on a worker's thread.
pub(crate) type Control = Box<dyn FnOnce(&Rc<Worker>) + Send>;

/// What one worker sends another.
pub(crate) enum Message {
    /// Do this to one of your stripes and answer.
    Piece { array: ArrayId, piece: StripeWork, from: usize, ticket: usize },
    /// The answer to the piece sent under `ticket`.
    Answer { ticket: usize, answer: Answer },
    /// Control: run this on your thread.
    Run(Control),
}

/// Load figures of a worker: it counts, any thread may read.
#[derive(Debug, Default)]
pub struct WorkerLoad {
    /// Pieces of stripe work done.
    pub pieces: Counter,
    /// Client requests that arrived here.
    pub requests: Counter,
    /// Messages sent to other workers: a piece of work for the owner of a stripe, or the answer to
    /// one.
    pub hops: Counter,
}

/// Requests and pieces under way on a worker, and the most that ever were.
#[derive(Default)]
pub(crate) struct Depth {
    now: Cell<usize>,
    max: Cell<usize>,
}

impl Depth {
    pub(crate) fn begin(&self) {
        let now = self.now.get() + 1;
        self.now.set(now);
        self.max.set(self.max.get().max(now));
    }

    pub(crate) fn end(&self) {
        self.now.set(self.now.get() - 1);
    }

    pub(crate) fn now(&self) -> usize {
        self.now.get()
    }

    pub(crate) fn max(&self) -> usize {
        self.max.get()
    }
}

/// One core's share of everything.
pub struct Worker {
    pub(crate) index: usize,
    pub(crate) handle: Handle,
    /// Buffers of requests: clients take them.
    pub(crate) payload: Pool,
    /// Buffers of writes that are being made whole blocks.
    pub(crate) wide: Pool,
    pub(crate) outcomes: Completions<Outcome>,
    pub(crate) zeros: Buf,
    pub(crate) load: Arc<WorkerLoad>,
    pub(crate) under_way: Depth,
    answers: Completions<Answer>,
    peers: Box<[Sender<Message>]>,
    tickets: RefCell<Tickets>,
    locals: RefCell<Vec<Option<Rc<LocalArray>>>>,
    /// The ways of clients into these arrays, and into those that start again.
    entrances: RefCell<Vec<Option<Rc<Entrance>>>>,
    pieces: Pieces<StripeTask>,
    stripe_tasks: StripeTasks,
    start_task: fn(&Rc<Worker>),
}

/// The tasks that do stripe work on a worker.
#[derive(Default)]
struct StripeTasks {
    /// All that were started: at most [`STRIPE_TASKS`].
    started: Cell<usize>,
    /// Those of them that are at no piece: each takes the next that is in line.
    idle: Cell<usize>,
}

thread_local! {
    /// One for all workers of a thread: a simulator makes some on each start, and clearing it anew
    /// took a fifth of its time.
    static ZEROS: Buf = BufMut::zeroed(REQUEST_BYTES_MAX).freeze();
}

/// The middle buffers that a worker has at least.
const MIDDLE_MIN: usize = 64;

/// What a worker is made with.
pub(crate) struct WorkerParts {
    pub(crate) index: usize,
    pub(crate) handle: Handle,
    pub(crate) payload_bytes: usize,
    pub(crate) peers: Box<[Sender<Message>]>,
    pub(crate) load: Arc<WorkerLoad>,
    /// Starts one more task that does stripe work.
    pub(crate) start_task: fn(&Rc<Worker>),
}

/// A piece of stripe work, of which array, and who waits for it.
pub(crate) struct StripeTask {
    pub(crate) local: Rc<LocalArray>,
    pub(crate) piece: StripeWork,
    pub(crate) reply: Reply,
}

/// Where the answer to a piece goes.
pub(crate) enum Reply {
    Here(Completion<Answer>),
    There { worker: usize, ticket: usize },
}

/// Pieces sent to other workers whose answers are awaited.
#[derive(Default)]
struct Tickets {
    waiting: Vec<Option<Completion<Answer>>>,
    free: Vec<usize>,
}

/// The end of a worker whose executor ends while arrays run: their shares hold the worker and it
/// holds them, so neither would ever be freed.
pub(crate) struct Parting(Rc<Worker>);

impl Drop for Parting {
    fn drop(&mut self) {
        let (locals, entrances) = (self.0.locals.take(), self.0.entrances.take());
        let tasks = self.0.pieces.take_all();
        let waiting = std::mem::take(&mut self.0.tickets.borrow_mut().waiting);
        drop((locals, entrances, tasks, waiting));
    }
}

impl Worker {
    /// Make the worker and start its tasks on its executor.
    pub(crate) fn start(parts: WorkerParts, mailbox: Receiver<Message>) -> io::Result<Rc<Worker>> {
        let large = (parts.payload_bytes / 2 / REQUEST_BYTES_MAX).max(LARGE_MIN);
        let payload = Pool::new(&[
            PoolClass { buffer_bytes: BLOCK_BYTES_USIZE, count: 2048 },
            PoolClass {
                buffer_bytes: MIDDLE_BYTES,
                count: (parts.payload_bytes / 2 / MIDDLE_BYTES).max(MIDDLE_MIN),
            },
            PoolClass { buffer_bytes: REQUEST_BYTES_MAX, count: large },
        ])?;
        let wide = Pool::new(&[
            PoolClass { buffer_bytes: 2 * BLOCK_BYTES_USIZE, count: STRIPE_TASKS },
            PoolClass { buffer_bytes: WIDE_BYTES_MAX, count: WIDE_COUNT },
        ])?;
        let worker = Rc::new(Worker {
            index: parts.index,
            handle: parts.handle,
            payload,
            wide,
            outcomes: Completions::new(),
            zeros: ZEROS.with(|zeros| zeros.slice(0..REQUEST_BYTES_MAX)),
            load: parts.load,
            under_way: Depth::default(),
            answers: Completions::new(),
            peers: parts.peers,
            tickets: RefCell::default(),
            locals: RefCell::default(),
            entrances: RefCell::default(),
            pieces: Pieces::default(),
            stripe_tasks: StripeTasks::default(),
            start_task: parts.start_task,
        });
        worker.handle.spawn(Rc::clone(&worker).read_mailbox(mailbox));
        Ok(worker)
    }

    /// This worker's share of an array, if the array runs.
    pub(crate) fn local(&self, array: ArrayId) -> Option<Rc<LocalArray>> {
        self.locals.borrow().get(array.0).cloned().flatten()
    }

    /// Put in this worker's share of an array that is being started. No client gets to it yet.
    pub(crate) fn set_local(&self, array: ArrayId, local: Rc<LocalArray>) {
        put(&self.locals, array, Some(local));
    }

    /// Take out this worker's share of an array, and let clients know. Those that wait for another
    /// start of the array keep their way in, and go on waiting.
    pub(crate) fn take_local(&self, array: ArrayId) {
        if let Some(entrance) = self.entrance(array) {
            entrance.vacate();
            if !entrance.is_shut() {
                self.set_entrance(array, None);
            }
        }
        put(&self.locals, array, None);
    }

    /// The array runs: clients get to this worker's share from now on.
    pub(crate) fn let_clients_in(&self, array: ArrayId) {
        match (self.entrance(array), self.local(array)) {
            (Some(entrance), local) => entrance.open(local),
            (None, Some(local)) => self.set_entrance(array, Some(Entrance::new(&local))),
            (None, None) => {}
        }
    }

    /// The way of clients into an array.
    pub(crate) fn entrance(&self, array: ArrayId) -> Option<Rc<Entrance>> {
        self.entrances.borrow().get(array.0).cloned().flatten()
    }

    /// The ways into all arrays.
    pub(crate) fn entrances(&self) -> Vec<Rc<Entrance>> {
        self.entrances.borrow().iter().flatten().cloned().collect()
    }

    /// Put in (or, with `None`, take out) the way of clients into an array.
    pub(crate) fn set_entrance(&self, array: ArrayId, entrance: Option<Rc<Entrance>>) {
        put(&self.entrances, array, entrance);
    }

    /// All arrays' shares on this worker.
    pub(crate) fn locals(&self) -> Vec<Rc<LocalArray>> {
        self.locals.borrow().iter().flatten().cloned().collect()
    }

    /// Number of workers.
    pub(crate) fn worker_count(&self) -> usize {
        self.peers.len()
    }

    /// Have `piece` done by `owner`, here or elsewhere. The work is under way when this returns.
    #[inline]
    pub(crate) fn hand_to(
        self: &Rc<Self>,
        owner: usize,
        local: &Rc<LocalArray>,
        piece: StripeWork,
    ) -> Pending<Answer> {
        let (completion, pending) = self.answers.pair();
        if owner == self.index {
            self.take_up(StripeTask {
                local: Rc::clone(local),
                piece,
                reply: Reply::Here(completion),
            });
        } else {
            local.counts().handed_over.add(1);
            self.load.hops.add(1);
            let ticket = self.tickets.borrow_mut().issue(completion);
            let array = local.array.identity.id;
            self.peers[owner].send(Message::Piece { array, piece, from: self.index, ticket });
        }
        pending
    }

    /// Have a piece done here, by a task of its own as long as there may be more.
    #[inline]
    fn take_up(self: &Rc<Self>, task: StripeTask) {
        self.pieces.push(&self.handle, task);
        self.start_task_if_needed();
    }

    #[inline]
    fn start_task_if_needed(self: &Rc<Self>) {
        let StripeTasks { started, idle } = &self.stripe_tasks;
        let may_start =
            || started.get() < STRIPE_TASKS || started.get() < STRIPE_TASKS + self.pieces_paused();
        if self.pieces.len() > idle.get() && may_start() {
            started.set(started.get() + 1);
            idle.set(idle.get() + 1);
            (self.start_task)(self);
        }
    }

    /// Pieces that may be waiting for room: reads, and other arrays, are not to wait behind them.
    fn pieces_paused(&self) -> usize {
        let locals = self.locals.borrow();
        let paused = locals.iter().flatten().filter(|local| local.array.room.waiting() != 0);
        paused.map(|local| local.changes_under_way.get()).sum()
    }

    /// A device's name in the stripe intent log, from the world's randomness: never zero.
    pub(crate) fn draw_log_tag(&self) -> u64 {
        self.handle.random_u64().max(1)
    }

    /// A random UUID from the world's randomness.
    pub(crate) fn draw_uuid(&self) -> uuid::Uuid {
        let (high, low) = (self.handle.random_u64(), self.handle.random_u64());
        uuid::Builder::from_u128((u128::from(high) << 64) | u128::from(low))
            .with_version(uuid::Version::Random)
            .with_variant(uuid::Variant::RFC4122)
            .into_uuid()
    }

    /// Run `action` on another worker's (or this one's) thread, soon.
    pub(crate) fn run_on(&self, worker: usize, action: impl FnOnce(&Rc<Worker>) + Send + 'static) {
        self.peers[worker].send(Message::Run(Box::new(action)));
    }

    async fn read_mailbox(self: Rc<Self>, mut mailbox: Receiver<Message>) {
        let _parting = Parting(Rc::clone(&self));
        loop {
            match mailbox.receive().await {
                Message::Piece { array, piece, from, ticket } => {
                    let reply = Reply::There { worker: from, ticket };
                    match self.local(array) {
                        Some(local) => self.take_up(StripeTask { local, piece, reply }),
                        None => self.answer(reply, Answer::Failed(VolumeErrorKind::Stopped)),
                    }
                }
                Message::Answer { ticket, answer } => {
                    self.tickets.borrow_mut().redeem(ticket).complete(answer);
                }
                Message::Run(action) => action(&self),
            }
        }
    }

    /// Held by a task that does stripe work, too: one that ends by a panic ends the worker.
    pub(crate) fn parting(self: &Rc<Self>) -> Parting {
        Parting(Rc::clone(self))
    }

    /// The next piece in line, for a task that is idle.
    pub(crate) async fn next_piece(self: &Rc<Self>, seat: &Rc<Seat>) -> StripeTask {
        poll_fn(|_| self.pieces.poll_promise(seat)).await;
        let task = self.pieces.take();
        let idle = &self.stripe_tasks.idle;
        idle.set(idle.get() - 1);
        self.start_task_if_needed();
        task
    }

    /// The piece was done: its task is idle again.
    pub(crate) fn end_piece(&self, reply: Reply, answer: Answer) {
        self.answer(reply, answer);
        let idle = &self.stripe_tasks.idle;
        idle.set(idle.get() + 1);
    }

    #[inline]
    fn answer(&self, reply: Reply, answer: Answer) {
        self.load.pieces.add(1);
        match reply {
            Reply::Here(completion) => completion.complete(answer),
            Reply::There { worker, ticket } => {
                self.load.hops.add(1);
                self.peers[worker].send(Message::Answer { ticket, answer });
            }
        }
    }
}

/// Put an array's entry into a list that has one for each number.
fn put<T: Clone>(list: &RefCell<Vec<Option<T>>>, array: ArrayId, entry: Option<T>) {
    let mut list = list.borrow_mut();
    if list.len() <= array.0 {
        list.resize(array.0 + 1, None);
    }
    // Dropped behind the borrow: an array that goes may ask for others.
    let _before = std::mem::replace(&mut list[array.0], entry);
    drop(list);
}

impl Tickets {
    fn issue(&mut self, completion: Completion<Answer>) -> usize {
        match self.free.pop() {
            Some(ticket) => {
                self.waiting[ticket] = Some(completion);
                ticket
            }
            None => {
                self.waiting.push(Some(completion));
                self.waiting.len() - 1
            }
        }
    }

    fn redeem(&mut self, ticket: usize) -> Completion<Answer> {
        let completion = self.waiting[ticket].take().expect("a ticket is redeemed once");
        self.free.push(ticket);
        completion
    }
}
