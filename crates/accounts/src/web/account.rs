//! What one has an account for: home, the page behind the login, changing the password, leaving.

use std::slice;

use axum::extract::Form;
use axum::extract::rejection::FormRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::cookies::Cookie;
use super::pages::{DeletePage, Failure, Frame, Home, Member, PasswordPage, ok, render};
use super::visitor::{PageRequest, Session};
use super::{App, as_ms};
use crate::limits::SEEN_EVERY_MS;
use crate::log::visited;
use crate::password;
use crate::store::{Lifetime, User};
use crate::token::Token;

impl Session {
    /// The session that a page needs, and the page's frame.
    async fn needed(request: &PageRequest) -> Result<(Self, Frame), Failure> {
        let session = request.session().await?.ok_or(Failure::NotLoggedIn)?;
        let frame = request.app.frame_of(&session);
        Ok((session, frame))
    }
}

impl App {
    /// Begins a session for a user whose password was verified. `None` if it has changed since.
    pub(super) async fn begin_session(&self, user: User) -> Result<Option<Token>, Failure> {
        let token = Token::random()?;
        let now_ms = self.options.clock.now_ms();
        let lifetime = Lifetime {
            now_ms,
            expires_ms: now_ms.saturating_add(as_ms(self.options.session_max)),
        };
        let began = self
            .store
            .add_session(token.stored(), user, lifetime)
            .await?;
        self.purge().await;
        Ok(began.then_some(token))
    }
}

impl PageRequest {
    /// The session of the visitor, if there is one.
    pub(super) async fn session(&self) -> Result<Option<Session>, Failure> {
        let App { options, store, .. } = &*self.app;
        let now_ms = options.clock.now_ms();
        let idle_ms = as_ms(options.session_idle);
        for token in &self.visitor.sessions {
            let Some(row) = store.session(token.stored(), now_ms, idle_ms).await? else {
                continue;
            };
            // Where a session ends soon without use, its use is to be noted long before.
            let seen_every_ms = SEEN_EVERY_MS.min(idle_ms / 10);
            if now_ms.saturating_sub(row.seen_ms) >= seen_every_ms {
                store.session_seen(token.stored(), now_ms).await?;
            }
            let token = token.clone();
            return Ok(Some(Session { token, row }));
        }
        Ok(None)
    }

    /// Ends every session whose cookie the browser has sent.
    pub(super) async fn end_sessions(&self) -> Result<(), Failure> {
        for token in &self.visitor.sessions {
            self.app.store.end_session(token.stored()).await?;
        }
        Ok(())
    }

    /// Checks where a form comes from and whether it carries one of these tokens; the token, if so.
    pub(super) fn check_form<'t>(
        &self,
        tokens: &'t [Token],
        given: &str,
    ) -> Result<&'t Token, Failure> {
        let site = self.fields.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_foreign = matches!(site, Some(b"cross-site" | b"same-site"));
        let token = tokens.iter().find(|token| token.is_of_form(given));
        token.filter(|_| !is_foreign).ok_or_else(|| {
            self.app.counts.forged.add(1);
            Failure::Forged
        })
    }

    /// What the address has after `?`, if it is one of ours, in words.
    fn notice(&self) -> &'static str {
        match self.query.as_deref() {
            Some("after=logout") => "You are logged out.",
            Some("after=deleted") => "Your account is deleted.",
            Some("after=password") => "Your password is changed, and other sessions are ended.",
            _ => "",
        }
    }
}

/// What forms say; empty is what a form does not have.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Filled {
    pub(super) token: String,
    pub(super) name: String,
    /// The present password, of a user who is logged in.
    pub(super) current: String,
    pub(super) password: String,
    pub(super) repeat: String,
}

/// A form that was sent, or why it cannot be read.
pub(super) type Sent = Result<Form<Filled>, FormRejection>;

pub(super) fn read(sent: Sent) -> Result<Filled, Failure> {
    match sent {
        Ok(Form(form)) => Ok(form),
        Err(rejection) => Err(Failure::Unreadable(rejection.status())),
    }
}

pub(super) async fn home(request: PageRequest) -> Result<Response, Failure> {
    let frame = match &request.session().await? {
        Some(session) => request.app.frame_of(session),
        None => request.app.frame(),
    };
    let notice = request.notice();
    Ok(ok(&Home::new(Frame { notice, ..frame })))
}

pub(super) async fn member(request: PageRequest) -> Result<Response, Failure> {
    let (_, frame) = Session::needed(&request).await?;
    let notice = request.notice();
    Ok(ok(&Member::new(Frame { notice, ..frame })))
}

/// The picture of the page behind the login: only for users who are logged in.
pub(super) async fn picture(request: PageRequest) -> Result<Response, Failure> {
    Session::needed(&request).await?;
    let kind = HeaderValue::from_static("image/png");
    let picture: &'static [u8] = include_bytes!("../../assets/harbour.png");
    Ok(([(header::CONTENT_TYPE, kind)], picture).into_response())
}

pub(super) async fn password_form(request: PageRequest) -> Result<Response, Failure> {
    let (_, frame) = Session::needed(&request).await?;
    Ok(ok(&PasswordPage::new(frame)))
}

pub(super) async fn change_password(request: PageRequest, sent: Sent) -> Result<Response, Failure> {
    let (session, frame) = Session::needed(&request).await?;
    let form = read(sent)?;
    request.check_form(slice::from_ref(&session.token), &form.token)?;
    let mut page = PasswordPage::new(frame);
    let name = session.row.name;
    let checked = password::check(&form.password, &name);
    page.password_warning = checked.err().unwrap_or_default();
    if form.password != form.repeat {
        page.repeat_warning = "The two passwords differ.";
    }
    if !page.password_warning.is_empty() || !page.repeat_warning.is_empty() {
        return Ok(render(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let proof = match request.prove(Some(&name.key), form.current).await {
        Ok(proof) => proof,
        Err(refused) => {
            let wrong = "This is not your present password.";
            return refused.shown(page, |page| page.current_warning = wrong);
        }
    };
    let replaced = replace_password(&request, proof.user, form.password).await?;
    let Some([session, device]) = replaced else {
        return Err(Failure::NotLoggedIn); // changed or deleted from elsewhere in between
    };
    let response = request.app.redirect("/member?after=password");
    let response = request.with_device(response, device.as_ref(), &name.key);
    Ok(request.with_cookie(response, Cookie::Session, session.as_ref()))
}

/// Stores the new password, and goes on in a new session, known by a new token: what was there before
/// ends. `None` if the password is another one already.
async fn replace_password(
    request: &PageRequest,
    user: User,
    password: String,
) -> Result<Option<[Option<Token>; 2]>, Failure> {
    let app = &request.app;
    let password_hash = app.hasher.hash(password).await?;
    let id = user.id;
    let new_hash = password_hash.clone();
    if !app.store.change_password(user, new_hash).await? {
        return Ok(None);
    }
    visited!("password changed", request.visitor, id);
    let user = User { id, password_hash };
    let session = app.begin_session(user.clone()).await?;
    let device = app.know_device(user, None).await?;
    Ok(Some([session, device]))
}

pub(super) async fn delete_form(request: PageRequest) -> Result<Response, Failure> {
    let (_, frame) = Session::needed(&request).await?;
    Ok(ok(&DeletePage::new(frame)))
}

pub(super) async fn delete(request: PageRequest, sent: Sent) -> Result<Response, Failure> {
    let (session, frame) = Session::needed(&request).await?;
    let form = read(sent)?;
    request.check_form(slice::from_ref(&session.token), &form.token)?;
    let page = DeletePage::new(frame);
    let key = session.row.name.key;
    let user = match request.prove(Some(&key), form.current).await {
        Ok(proof) => proof.user,
        Err(refused) => {
            let wrong = "This is not your password.";
            return refused.shown(page, |page| page.current_warning = wrong);
        }
    };
    let id = user.id;
    if !request.app.store.remove_user(user).await? {
        return Err(Failure::NotLoggedIn);
    }
    visited!("deleted", request.visitor, id);
    let response = request.app.redirect("/?after=deleted");
    let response = request.with_cookie(response, Cookie::Device(&key), None);
    Ok(request.with_cookie(response, Cookie::Session, None))
}

pub(super) async fn logout(request: PageRequest, sent: Sent) -> Result<Response, Failure> {
    let form = read(sent)?;
    let has_session = !request.visitor.sessions.is_empty();
    if has_session {
        request.check_form(&request.visitor.sessions, &form.token)?;
        request.end_sessions().await?;
    }
    let response = request.app.redirect("/?after=logout");
    // Browsers send other sites' forms without this cookie, so it may be there all the same.
    Ok(match has_session {
        true => request.with_cookie(response, Cookie::Session, None),
        false => response,
    })
}
