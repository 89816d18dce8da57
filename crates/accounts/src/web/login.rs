//! Logging in.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;

use super::App;
use super::account::{Refused, Sent, read};
use super::pages::{Failed, Failure, LoginPage, render, too_many, with_cookie, with_wait};
use super::visitor::{Cookie, Visitor};
use crate::name::UserName;
use crate::store::User;
use crate::token::Token;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LoginForm {
    token: String,
    name: String,
    password: String,
}

pub(super) async fn form(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Result<Response, Failed> {
    let session = app
        .session(&visitor)
        .await
        .map_err(|error| app.failed(error))?;
    if session.is_some() {
        return Ok(app.redirect("/member"));
    }
    let (guest, is_new) = app.guest(&visitor).map_err(|error| app.failed(error))?;
    let mut page = page(&app, &guest, "");
    if uri.query() == Some("after=registered") {
        page.frame.notice = "Your account is made. Log in with it.";
    }
    let response = render(StatusCode::OK, &page);
    Ok(match is_new {
        true => with_cookie(response, Cookie::Guest, Some(&guest), &app, &visitor),
        false => response,
    })
}

fn page(app: &App, guest: &Token, name: &str) -> LoginPage {
    let mut frame = app.frame();
    frame.form_token = guest.for_forms();
    LoginPage {
        frame,
        name: name.to_owned(),
    }
}

pub(super) async fn login(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<LoginForm>,
) -> Result<Response, Failed> {
    let failed = |error: Failure| app.failed(error);
    let form = read(sent).map_err(failed)?;
    let guest = visitor.guest.clone();
    app.check_form(&fields, guest.as_ref(), &form.token)
        .map_err(failed)?;
    let guest = guest.ok_or(Failure::Forged).map_err(failed)?;
    let mut page = page(&app, &guest, &form.name);
    let key = UserName::parse(&form.name).ok().map(|name| name.key);
    match app.prove(&visitor, key, form.password).await {
        Ok(user) => {
            if let Some(response) = enter(&app, &visitor, user).await.map_err(failed)? {
                return Ok(response);
            }
        }
        Err(Refused::Wrong) => {}
        Err(Refused::TooMany(wait)) => {
            page.frame.warning = too_many(wait);
            return Ok(with_wait(
                render(StatusCode::TOO_MANY_REQUESTS, &page),
                wait,
            ));
        }
        Err(Refused::Failure(error)) => return Err(app.failed(error)),
    }
    tracing::info!(address = %visitor.address, "accounts: login refused");
    page.frame.warning = "The user name or the password is wrong.".to_owned();
    Ok(render(StatusCode::FORBIDDEN, &page))
}

/// A new session in place of the one that was there; `None` if the password has changed meanwhile.
async fn enter(app: &App, visitor: &Visitor, user: User) -> Result<Option<Response>, Failure> {
    let id = user.id;
    let Some(token) = app.begin_session(user).await? else {
        return Ok(None);
    };
    if let Some(old) = &visitor.session {
        app.store.end_session(old.stored()).await?;
    }
    app.counts.logins.add(1);
    tracing::info!(user_id = id, address = %visitor.address, "accounts: logged in");
    let response = app.redirect("/member");
    let response = with_cookie(response, Cookie::Session, Some(&token), app, visitor);
    Ok(Some(with_cookie(
        response,
        Cookie::Guest,
        None,
        app,
        visitor,
    )))
}

impl App {
    /// The token of a browser where nobody is logged in, and whether it is a new one.
    pub(super) fn guest(&self, visitor: &Visitor) -> Result<(Token, bool), Failure> {
        match &visitor.guest {
            Some(token) => Ok((token.clone(), false)),
            None => Ok((Token::random()?, true)),
        }
    }
}
