//! A layer whose handshake is a computation, as that of TLS is.

use std::any::Any;
use std::sync::{Arc, Weak};

use loadline_base::Buffer;
use loadline_proto::{Computation, Fault, Layer};

/// A first message with no request behind it.
pub(crate) const HELLO: &[u8] = b"hello";

/// Changes nothing, and opens when something was computed on what has come first.
#[derive(Debug)]
pub(crate) struct Computed {
    carry_out: fn(),
    alive: Arc<()>,
    input: Buffer,
    has_begun: bool,
    is_due: bool,
    is_open: bool,
}

impl Computed {
    /// What is computed does this.
    pub(crate) fn by(carry_out: fn()) -> Self {
        Self {
            carry_out,
            alive: Arc::default(),
            input: Buffer::default(),
            has_begun: false,
            is_due: false,
            is_open: false,
        }
    }
}

#[derive(Debug)]
struct Sum {
    carry_out: fn(),
    is_done: bool,
    alive: Weak<()>,
}

impl Computation for Sum {
    fn carry_out(&mut self) {
        (self.carry_out)();
        self.is_done = true;
    }

    fn is_abandoned(&self) -> bool {
        self.alive.strong_count() == 0
    }
}

impl Layer for Computed {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        _out: &mut Buffer,
    ) -> Result<(), Fault> {
        match self.is_open {
            true => plain.extend_from_slice(bytes),
            false => {
                self.input
                    .extend_from_slice(bytes.strip_prefix(HELLO).unwrap_or(bytes));
                self.has_begun = true;
                self.is_due = true;
            }
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        out.extend_from_slice(plain);
    }

    fn finish(&mut self, _out: &mut Buffer) {}

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn take_computation(&mut self) -> Option<Box<dyn Computation>> {
        let sum = || Sum {
            carry_out: self.carry_out,
            is_done: false,
            alive: Arc::downgrade(&self.alive),
        };
        let is_due = std::mem::replace(&mut self.is_due, false);
        is_due.then(|| Box::new(sum()) as Box<dyn Computation>)
    }

    fn computed(
        &mut self,
        computation: Box<dyn Computation>,
        plain: &mut Buffer,
        _out: &mut Buffer,
    ) -> Result<(), Fault> {
        let computation: Box<dyn Any> = computation;
        let sum = computation.downcast::<Sum>();
        self.is_open = sum.is_ok_and(|sum| sum.is_done);
        plain.append(&mut self.input);
        match self.is_open {
            true => Ok(()),
            false => Err(Fault::bad_request("there was no room")),
        }
    }
}
