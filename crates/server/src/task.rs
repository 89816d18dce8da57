//! Requests that an app's task answers: what passes between the thread that polls the task and the
//! one that owns the connection. Often both are one.
//!
//! ```text
//!   owner   offer · pull · cancel ──►  ┌─────────┐ ──► content · room · gone     task
//!           events               ◄──   │ Channel │ ◄── answer · produce
//!                                      └─────────┘
//! ```
//!
//! A loop, if it has no workers, and a blocking thread poll their tasks themselves. A worker polls a task
//! once and takes its next job: where the task waits, its future stays in the channel until it is woken,
//! which queues it again, once. A thread of a pool polls a task itself until that waits, and then leaves
//! it to the pool, and the connection to the loop (`Tasks::pass_on`, `TaskPool::adopt`).
//!
//! ```text
//!              a worker takes it            pending
//!   queued ─────────────────────► polled ───────────► waiting
//!      ▲                          │ │                   │
//!      ├── woken meanwhile ◄──────┘ └──► over           │
//!      └───────────────── woken, or cancelled ◄─────────┘
//! ```
//!
//! A blocking thread with many requests of a connection (HTTP/2) prepares a task when its request comes, and
//! begins it at its turn (`TaskPool::prepare`, `Tasks::begin`).
//!
//! What the task produces is kept until the owner takes it, and the owner is notified once for all
//! of it: by its mailbox, or by an eventfd that a blocking thread polls. Bounded by the windows of
//! the session.

mod channel;
mod handle;
mod worker;

pub(crate) use channel::{Channel, Notify, TaskHome};
pub(crate) use handle::{Polled, TaskHandle, TaskPool, Tasks};
pub(crate) use worker::WorkerTask;

#[cfg(test)]
mod tests;
