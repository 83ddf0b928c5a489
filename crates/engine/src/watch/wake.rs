//! Says that a command is under way, so that somebody looks whether it is answered.
//!
//! What must stay true: a command pays only for one flag that is read.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// The looks of one array on one worker: whether they are being taken, and how they begin.
#[derive(Default)]
pub(crate) struct Watch {
    begin: OnceCell<Box<dyn Fn()>>,
    /// Looks are being taken, so the start of a command need not begin them.
    pub(super) is_awake: Cell<bool>,
}

impl Watch {
    pub(crate) fn new() -> Rc<Watch> {
        Rc::default()
    }

    /// How looks begin; said once.
    pub(super) fn set_begin(&self, begin: impl Fn() + 'static) {
        assert!(self.begin.set(Box::new(begin)).is_ok(), "a watch belongs to one local array");
    }

    /// A command is under way on a device of the array.
    pub(crate) fn note(&self) {
        if !self.is_awake.get() {
            self.wake();
        }
    }

    #[cold]
    pub(super) fn wake(&self) {
        self.is_awake.set(true);
        if let Some(begin) = self.begin.get() {
            begin();
        }
    }
}
