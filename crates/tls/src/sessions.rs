//! Sessions that a client may go on with: the tickets of its servers.
//!
//! The library has a store of its own, with eight tickets for each server: of sixty connections that are
//! opened together, fifty would find none.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Tickets that are kept of one server, of about half a KiB each. Each serves once, and a handshake brings
/// two in most cases, so this is for as many connections at a time.
const TICKETS_MAX: usize = 16 << 10;

/// The sessions of one client.
#[derive(Default)]
pub(crate) struct Sessions {
    servers: Mutex<HashMap<ServerName<'static>, OfServer>>,
}

#[derive(Default)]
struct OfServer {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    /// The newest last.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    /// Taken for a handshake, and not by servers at all.
    fn lock(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, OfServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.lock().entry(name).or_default().group = Some(group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().get(name)?.group
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.lock().entry(name).or_default().tls12 = Some(value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().get(name)?.tls12.clone()
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(server) = self.lock().get_mut(name) {
            server.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut servers = self.lock();
        let tickets = &mut servers.entry(name).or_default().tickets;
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().get_mut(name)?.tickets.pop_back()
    }
}
