//! Proof: a password that was given, held against an account within the limits on tries.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;

use super::App;
use super::pages::{Failure, FormPage, render, render_throttled};
use super::visitor::PageRequest;
use crate::guard::{AttemptOutcome, Key, Who};
use crate::limits::PASSWORD_CHARS_MAX;
use crate::store::User;
use crate::token::Token;

/// A password was the right one.
pub(super) struct Proof {
    pub(super) user: User,
    /// By which the account knows the browser already.
    pub(super) device: Option<Token>,
}

/// Why a password was not accepted as proof.
pub(super) enum Refused {
    /// No such user, or another password: the answer does not say which.
    Wrong,
    /// Too many tries; the next may come after so long.
    TooMany(Duration),
    Failure(Failure),
}

impl<E: Into<Failure>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::Failure(error.into())
    }
}

impl Refused {
    /// The page of the form again; `wrong` puts on it what a wrong password comes to.
    pub(super) fn shown<P: FormPage>(
        self,
        mut page: P,
        wrong: impl FnOnce(&mut P),
    ) -> Result<Response, Failure> {
        match self {
            Self::Wrong => {
                wrong(&mut page);
                Ok(render(StatusCode::FORBIDDEN, &page))
            }
            Self::TooMany(wait) => Ok(render_throttled(page, wait)),
            Self::Failure(error) => Err(error),
        }
    }
}

impl PageRequest {
    /// Whether a password is the one of a user, within the limits on tries. It takes as long for a
    /// user who is not there, and all limits are the same.
    pub(super) async fn prove(
        &self,
        name_key: Option<&str>,
        password: String,
    ) -> Result<Proof, Refused> {
        let app = &self.app;
        let device = match name_key {
            Some(key) => self.device(key).await?,
            None => None,
        };
        let who = match &device {
            Some(device) => Who::Device(Key::of(device.as_cookie())),
            None => Who::Stranger {
                account: name_key.map(Key::of),
                address: self.visitor.address,
            },
        };
        let now_ms = app.options.clock.now_ms();
        app.guard.begin(&who, now_ms).map_err(|wait| {
            app.counts.throttled.add(1);
            Refused::TooMany(wait)
        })?;
        let verified = app.verify(name_key.unwrap_or_default(), password).await;
        let outcome = match &verified {
            Ok(_) => AttemptOutcome::Right,
            Err(Refused::Wrong) => {
                app.counts.logins_refused.add(1);
                AttemptOutcome::Wrong
            }
            Err(_) => AttemptOutcome::Unknown,
        };
        app.guard.end(&who, outcome);
        verified.map(|user| Proof { user, device })
    }
}

impl App {
    async fn verify(&self, key: &str, password: String) -> Result<User, Refused> {
        let user = self.store.user(key.to_owned()).await?;
        let stored = user.as_ref().map(|user| user.password_hash.clone());
        // None is as long as that: it is wrong, and takes as long as any.
        let bounded = password.chars().take(PASSWORD_CHARS_MAX + 1).collect();
        let is_right = self.hasher.verify(bounded, stored).await?;
        user.filter(|_| is_right).ok_or(Refused::Wrong)
    }
}
