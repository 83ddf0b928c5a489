//! Work whose panic ends that work alone.
//!
//! What must stay true: a panic of another task, which runs within this one because this one called
//! it, is not taken for a panic of this work. Not here: for which work that is right. What it had
//! begun to change stays half changed.

use crate::executor::Handle;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// The executor of the contained work that runs on this thread.
    static RUNNING: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// Whether a panic on this thread now would end contained work and nothing else: for panic hooks.
pub fn is_contained() -> bool {
    RUNNING.with_borrow(|running| running.as_ref().is_some_and(|handle| !handle.is_nested()))
}

/// See [`contained`].
struct Contained<F: Future> {
    handle: Handle,
    work: Pin<Box<F>>,
}

/// What `work` says, or the text of the panic that ended it.
///
/// # Errors
/// It panicked.
pub fn contained<T>(
    handle: &Handle,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, String>> {
    Contained { handle: handle.clone(), work: Box::pin(work) }
}

impl<F: Future> Future for Contained<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let before = RUNNING.replace(Some(self.handle.clone()));
        let polled = catch_unwind(AssertUnwindSafe(|| self.work.as_mut().poll(cx)));
        RUNNING.set(before);
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) if self.handle.is_nested() => resume_unwind(panic),
            Err(panic) => Poll::Ready(Err(text_of(panic.as_ref()))),
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "a panic without words".to_owned(),
    }
}
