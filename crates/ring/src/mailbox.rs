//! Messages to one executor from any thread.
//!
//! What must stay true: messages of one sender arrive in the order they were sent; sending never
//! waits for the receiver; the receiver takes everything that is there in one swap under the lock;
//! its thread is woken only if it waits. A mailbox has no limit of its own: senders hold credits.
//! Not here: replies, which are messages the other way.

use crate::Handle;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A new, empty mailbox; `handle` is the receiving executor.
pub fn mailbox<M: Send + 'static>(handle: &Handle) -> (Sender<M>, Receiver<M>) {
    // The waker of the receiving task knows the executor; the handle only shows that the caller is
    // on it.
    let _ = handle;
    let post = Post { messages: VecDeque::new(), waiting: None, closed: false };
    let shared = Arc::new(Shared { post: Mutex::new(post) });
    let sender = Sender { shared: Arc::clone(&shared) };
    (sender, Receiver { shared, taken: VecDeque::new(), home: PhantomData })
}

struct Shared<M> {
    post: Mutex<Post<M>>,
}

struct Post<M> {
    messages: VecDeque<M>,
    /// The receiving task, while it waits.
    waiting: Option<Waker>,
    closed: bool,
}

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, Post<M>> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end: clone it into any thread.
pub struct Sender<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<M> Sender<M> {
    /// Sends a message. Never waits; if the receiver is gone the message is dropped.
    pub fn send(&self, message: M) {
        let mut post = self.shared.lock();
        if post.closed {
            drop(post);
            drop(message);
            return;
        }
        post.messages.push_back(message);
        let waiting = post.waiting.take();
        drop(post);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// The receiving end; lives on the executor.
pub struct Receiver<M> {
    shared: Arc<Shared<M>>,
    /// Messages taken out of the lock but not yet received.
    taken: VecDeque<M>,
    /// Not Send: it belongs to its executor.
    home: PhantomData<Rc<()>>,
}

impl<M> Receiver<M> {
    /// The next message; waits for it. Waits for ever once all senders are gone.
    ///
    /// # Cancellation
    /// Dropping the future loses no message.
    pub async fn receive(&mut self) -> M {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// The next message, if one is there.
    pub fn try_receive(&mut self) -> Option<M> {
        if self.taken.is_empty() {
            std::mem::swap(&mut self.shared.lock().messages, &mut self.taken);
        }
        self.taken.pop_front()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<M> {
        if let Some(message) = self.taken.pop_front() {
            return Poll::Ready(message);
        }
        let mut post = self.shared.lock();
        std::mem::swap(&mut post.messages, &mut self.taken);
        if let Some(message) = self.taken.pop_front() {
            return Poll::Ready(message);
        }
        let before = post.waiting.replace(cx.waker().clone());
        drop(post);
        drop(before);
        Poll::Pending
    }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        let mut post = self.shared.lock();
        post.closed = true;
        let left = std::mem::take(&mut post.messages);
        let waiting = post.waiting.take();
        drop(post);
        drop((left, waiting));
    }
}
