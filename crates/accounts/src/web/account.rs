//! What one has an account for: home, the page behind the login, changing the password, leaving.

use std::slice;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::cookies::Cookie;
use super::pages::{DeletePage, Failure, Frame, Home, Member, PasswordPage, render, with_cookie};
use super::visitor::Visitor;
use super::{App, as_ms};
use crate::limits::SEEN_EVERY_MS;
use crate::log::visited;
use crate::name::UserName;
use crate::password;
use crate::store::{Lifetime, SessionRow, User};
use crate::token::Token;

/// A session of a user who is logged in.
pub(super) struct Session {
    pub(super) token: Token,
    pub(super) row: SessionRow,
}

impl App {
    /// The session of a visitor, if there is one.
    pub(super) async fn session(&self, visitor: &Visitor) -> Result<Option<Session>, Failure> {
        let now_ms = self.options.clock.now_ms();
        let idle_ms = as_ms(self.options.session_idle);
        for token in &visitor.sessions {
            let Some(row) = self.store.session(token.stored(), now_ms, idle_ms).await? else {
                continue;
            };
            if now_ms.saturating_sub(row.seen_ms) >= SEEN_EVERY_MS {
                self.store.session_seen(token.stored(), now_ms).await?;
            }
            let token = token.clone();
            return Ok(Some(Session { token, row }));
        }
        Ok(None)
    }

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

    /// Ends every session whose cookie the browser has sent.
    pub(super) async fn end_sessions(&self, visitor: &Visitor) -> Result<(), Failure> {
        for token in &visitor.sessions {
            self.store.end_session(token.stored()).await?;
        }
        Ok(())
    }

    /// Checks where a form comes from and whether it carries one of these tokens; the token, if so.
    pub(super) fn check_form<'t>(
        &self,
        fields: &HeaderMap,
        tokens: &'t [Token],
        given: &str,
    ) -> Result<&'t Token, Failure> {
        let site = fields.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_foreign = matches!(site, Some(b"cross-site" | b"same-site"));
        let token = tokens.iter().find(|token| token.is_of_form(given));
        token.filter(|_| !is_foreign).ok_or_else(|| {
            self.counts.forged.add(1);
            Failure::Forged
        })
    }
}

/// A form that was sent, or why it cannot be read.
pub(super) type Sent<T> = Result<Form<T>, FormRejection>;

pub(super) fn read<T>(sent: Sent<T>) -> Result<T, Failure> {
    match sent {
        Ok(Form(form)) => Ok(form),
        Err(rejection) => Err(Failure::Unreadable(rejection.status())),
    }
}

/// What an address has after `?`, if it is one of ours, in words.
fn notice(uri: &Uri) -> &'static str {
    match uri.query() {
        Some("after=logout") => "You are logged out.",
        Some("after=deleted") => "Your account is deleted.",
        Some("after=password") => "Your password is changed, and other sessions are ended.",
        _ => "",
    }
}

pub(super) async fn home(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Result<Response, Failure> {
    let session = app.session(&visitor).await?;
    let frame = match &session {
        Some(session) => app.frame_of(&session.row, &session.token),
        None => app.frame(),
    };
    let notice = notice(&uri);
    Ok(render(
        StatusCode::OK,
        &Home::new(Frame { notice, ..frame }),
    ))
}

/// The session that a page needs.
async fn logged_in(app: &App, visitor: &Visitor) -> Result<Session, Failure> {
    app.session(visitor).await?.ok_or(Failure::NotLoggedIn)
}

pub(super) async fn member(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    let frame = Frame {
        notice: notice(&uri),
        ..app.frame_of(&session.row, &session.token)
    };
    Ok(render(StatusCode::OK, &Member::new(frame)))
}

/// The picture of the page behind the login: only for users who are logged in.
pub(super) async fn picture(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Failure> {
    logged_in(&app, &visitor).await?;
    let kind = HeaderValue::from_static("image/png");
    let picture: &'static [u8] = include_bytes!("../../assets/harbour.png");
    Ok(([(header::CONTENT_TYPE, kind)], picture).into_response())
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PasswordForm {
    token: String,
    current: String,
    password: String,
    repeat: String,
}

pub(super) async fn password_form(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    Ok(render(
        StatusCode::OK,
        &PasswordPage::new(app.frame_of(&session.row, &session.token)),
    ))
}

pub(super) async fn change_password(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<PasswordForm>,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    let form = read(sent)?;
    app.check_form(&fields, slice::from_ref(&session.token), &form.token)?;
    let mut page = PasswordPage::new(app.frame_of(&session.row, &session.token));
    let name = UserName {
        shown: session.row.name.clone(),
        key: session.row.name_key.clone(),
    };
    page.password_warning = password::check(&form.password, &name)
        .err()
        .unwrap_or_default();
    if form.password != form.repeat {
        page.repeat_warning = "The two passwords differ.";
    }
    if !page.password_warning.is_empty() || !page.repeat_warning.is_empty() {
        return Ok(render(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let proven = app.prove(&visitor, &fields, Some(&name.key), form.current);
    let proof = match proven.await {
        Ok(proof) => proof,
        Err(refused) => {
            let wrong = "This is not your present password.";
            return refused.shown(page, |page| page.current_warning = wrong);
        }
    };
    let replaced = replace_password(&app, &visitor, proof.user, form.password).await?;
    let Some([session, device]) = replaced else {
        return Err(Failure::NotLoggedIn); // changed or deleted from elsewhere in between
    };
    let response = app.redirect("/member?after=password");
    let response = app.with_device(response, device.as_ref(), &visitor, &fields, &name.key);
    let session = session.as_ref();
    Ok(with_cookie(
        response,
        Cookie::Session,
        session,
        &app,
        &visitor,
    ))
}

/// Stores the new password, and goes on in a new session, known by a new token: what was there before
/// ends. `None` if the password is another one already.
async fn replace_password(
    app: &App,
    visitor: &Visitor,
    user: User,
    password: String,
) -> Result<Option<[Option<Token>; 2]>, Failure> {
    let password_hash = app.hasher.hash(password).await?;
    let id = user.id;
    if !app
        .store
        .change_password(user, password_hash.clone())
        .await?
    {
        return Ok(None);
    }
    visited!("password changed", visitor, id);
    let user = User { id, password_hash };
    let session = app.begin_session(user.clone()).await?;
    let device = app.know_device(user, None).await?;
    Ok(Some([session, device]))
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct DeleteForm {
    token: String,
    current: String,
}

pub(super) async fn delete_form(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    Ok(render(
        StatusCode::OK,
        &DeletePage::new(app.frame_of(&session.row, &session.token)),
    ))
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<DeleteForm>,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    let form = read(sent)?;
    app.check_form(&fields, slice::from_ref(&session.token), &form.token)?;
    let page = DeletePage::new(app.frame_of(&session.row, &session.token));
    let key = session.row.name_key.clone();
    let proven = app.prove(&visitor, &fields, Some(&key), form.current);
    let user = match proven.await {
        Ok(proof) => proof.user,
        Err(refused) => {
            let wrong = "This is not your password.";
            return refused.shown(page, |page| page.current_warning = wrong);
        }
    };
    let id = user.id;
    if !app.store.remove_user(user).await? {
        return Err(Failure::NotLoggedIn);
    }
    visited!("deleted", visitor, id);
    let response = app.redirect("/?after=deleted");
    let response = with_cookie(response, Cookie::Device(&key), None, &app, &visitor);
    Ok(with_cookie(response, Cookie::Session, None, &app, &visitor))
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LogoutForm {
    token: String,
}

pub(super) async fn logout(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<LogoutForm>,
) -> Result<Response, Failure> {
    let form = read(sent)?;
    if !visitor.sessions.is_empty() {
        app.check_form(&fields, &visitor.sessions, &form.token)?;
        app.end_sessions(&visitor).await?;
    }
    let response = app.redirect("/?after=logout");
    Ok(with_cookie(response, Cookie::Session, None, &app, &visitor))
}
