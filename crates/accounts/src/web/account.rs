//! What one has an account for: home, the page behind the login, changing the password, leaving.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::pages::{
    DeletePage, Failure, Frame, Home, Member, PasswordPage, render, render_throttled, too_many,
    with_cookie,
};
use super::visitor::{Cookie, Visitor};
use super::{App, as_ms};
use crate::name::UserName;
use crate::options::{PASSWORD_CHARS_MAX, SEEN_EVERY_MS};
use crate::password;
use crate::store::{Lifetime, SessionRow, User};
use crate::token::Token;

/// Somebody who is logged in.
pub(super) struct Session {
    pub(super) token: Token,
    pub(super) row: SessionRow,
}

/// Why a password was not accepted as proof.
pub(super) enum Refused {
    /// No such user, or another password: nobody is told which.
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

impl App {
    /// The session of who asks, if there is one.
    pub(super) async fn session(&self, visitor: &Visitor) -> Result<Option<Session>, Failure> {
        let Some(token) = &visitor.session else {
            return Ok(None);
        };
        let now_ms = self.options.clock.now_ms();
        let idle_ms = as_ms(self.options.session_idle);
        let Some(row) = self.store.session(token.stored(), now_ms, idle_ms).await? else {
            return Ok(None);
        };
        if now_ms.saturating_sub(row.seen_ms) >= SEEN_EVERY_MS {
            self.store.session_seen(token.stored(), now_ms).await?;
        }
        Ok(Some(Session {
            token: token.clone(),
            row,
        }))
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

    /// Whether a password is the one of a user, within the limits on tries. It takes as long for a
    /// user who is not there.
    pub(super) async fn prove(
        &self,
        visitor: &Visitor,
        name_key: Option<String>,
        password: String,
    ) -> Result<User, Refused> {
        let now_ms = self.options.clock.now_ms();
        let refuse = |wait| {
            self.counts.throttled.add(1);
            Refused::TooMany(wait)
        };
        let key = name_key.unwrap_or_default();
        let address = visitor.address;
        self.tries_by_address
            .begin(&address, now_ms)
            .map_err(refuse)?;
        if let Err(wait) = self.tries_by_account.begin(&key, now_ms) {
            self.tries_by_address.give_back(&address);
            return Err(refuse(wait));
        }
        let verified = self.verify(&key, password).await;
        match &verified {
            Ok(_) => {
                self.tries_by_address.give_back(&address);
                self.tries_by_account.forget(&key);
            }
            Err(Refused::Wrong) => self.counts.logins_refused.add(1),
            Err(_) => {
                self.tries_by_address.give_back(&address);
                self.tries_by_account.give_back(&key);
            }
        }
        verified
    }

    async fn verify(&self, key: &str, password: String) -> Result<User, Refused> {
        let user = self.store.user(key.to_owned()).await?;
        let stored = user.as_ref().map(|user| user.password_hash.clone());
        // None is as long as that: it is wrong, and takes as long as any.
        let bounded = password.chars().take(PASSWORD_CHARS_MAX + 1).collect();
        let is_right = self.hasher.verify(bounded, stored).await?;
        user.filter(|_| is_right).ok_or(Refused::Wrong)
    }

    /// Checks where a form comes from and whose token it carries; the token, if it is right.
    pub(super) fn check_form<'t>(
        &self,
        fields: &HeaderMap,
        token: Option<&'t Token>,
        given: &str,
    ) -> Result<&'t Token, Failure> {
        let site = fields.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_foreign = matches!(site, Some(b"cross-site" | b"same-site"));
        let token = token.filter(|token| !is_foreign && token.is_of_form(given));
        token.ok_or_else(|| {
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
    let frame = Frame {
        notice: notice(&uri),
        ..frame
    };
    Ok(render(StatusCode::OK, &Home { frame }))
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
    Ok(render(StatusCode::OK, &Member { frame }))
}

/// The picture of the page behind the login: for who is logged in, and nobody else.
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
    Ok(render(StatusCode::OK, &password_page(&app, &session)))
}

fn password_page(app: &App, session: &Session) -> PasswordPage {
    PasswordPage {
        frame: app.frame_of(&session.row, &session.token),
        current_warning: "",
        password_warning: "",
        repeat_warning: "",
    }
}

pub(super) async fn change_password(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<PasswordForm>,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    let form = read(sent)?;
    app.check_form(&fields, Some(&session.token), &form.token)?;
    let mut page = password_page(&app, &session);
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
    let user = match app.prove(&visitor, Some(name.key), form.current).await {
        Ok(user) => user,
        Err(Refused::Wrong) => {
            page.current_warning = "This is not your present password.";
            return Ok(render(StatusCode::FORBIDDEN, &page));
        }
        Err(Refused::TooMany(wait)) => {
            page.frame.warning = too_many(wait);
            return Ok(render_throttled(&page, wait));
        }
        Err(Refused::Failure(error)) => return Err(error),
    };
    replace_password(&app, &visitor, user, form.password).await
}

/// Stores the new password, and goes on in a new session: the present one ends with all others.
async fn replace_password(
    app: &App,
    visitor: &Visitor,
    user: User,
    password: String,
) -> Result<Response, Failure> {
    let password_hash = app.hasher.hash(password).await?;
    let id = user.id;
    if !app
        .store
        .change_password(user, password_hash.clone())
        .await?
    {
        return Err(Failure::NotLoggedIn); // changed or deleted from elsewhere in between
    }
    tracing::info!(user_id = id, address = %visitor.address, "accounts: password changed");
    let token = app.begin_session(User { id, password_hash }).await?;
    let response = app.redirect("/member?after=password");
    Ok(with_cookie(
        response,
        Cookie::Session,
        token.as_ref(),
        app,
        visitor,
    ))
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
    Ok(render(StatusCode::OK, &delete_page(&app, &session)))
}

fn delete_page(app: &App, session: &Session) -> DeletePage {
    DeletePage {
        frame: app.frame_of(&session.row, &session.token),
        current_warning: "",
    }
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<DeleteForm>,
) -> Result<Response, Failure> {
    let session = logged_in(&app, &visitor).await?;
    let form = read(sent)?;
    app.check_form(&fields, Some(&session.token), &form.token)?;
    let mut page = delete_page(&app, &session);
    let key = session.row.name_key.clone();
    let user = match app.prove(&visitor, Some(key), form.current).await {
        Ok(user) => user,
        Err(Refused::Wrong) => {
            page.current_warning = "This is not your password.";
            return Ok(render(StatusCode::FORBIDDEN, &page));
        }
        Err(Refused::TooMany(wait)) => {
            page.frame.warning = too_many(wait);
            return Ok(render_throttled(&page, wait));
        }
        Err(Refused::Failure(error)) => return Err(error),
    };
    let id = user.id;
    if !app.store.remove_user(user).await? {
        return Err(Failure::NotLoggedIn);
    }
    tracing::info!(user_id = id, address = %visitor.address, "accounts: deleted");
    let response = app.redirect("/?after=deleted");
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
    if let Some(token) = &visitor.session {
        app.check_form(&fields, Some(token), &form.token)?;
        app.store.end_session(token.stored()).await?;
    }
    let response = app.redirect("/?after=logout");
    Ok(with_cookie(response, Cookie::Session, None, &app, &visitor))
}
