//! Logging in.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;

use super::App;
use super::account::{Refused, Sent, read};
use super::pages::{Failure, LoginPage, render, render_throttled, too_many, with_cookie};
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
) -> Result<Response, Failure> {
    app.show_to_guest(&visitor, |guest| {
        let mut page = page(&app, guest, "");
        if uri.query() == Some("after=registered") {
            page.frame.notice = "Your account is made. Log in with it.";
        }
        page
    })
    .await
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
) -> Result<Response, Failure> {
    let form = read(sent)?;
    let guest = app.check_form(&fields, visitor.guest.as_ref(), &form.token)?;
    let mut page = page(&app, guest, &form.name);
    let key = UserName::parse(&form.name).ok().map(|name| name.key);
    match app.prove(&visitor, key, form.password).await {
        Ok(user) => {
            if let Some(response) = enter(&app, &visitor, user).await? {
                return Ok(response);
            }
        }
        Err(Refused::Wrong) => {}
        Err(Refused::TooMany(wait)) => {
            page.frame.warning = too_many(wait);
            return Ok(render_throttled(&page, wait));
        }
        Err(Refused::Failure(error)) => return Err(error),
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
    /// A page with a form for who is not logged in yet, and the cookie that goes with it if the
    /// browser has none; who is logged in is sent on.
    pub(super) async fn show_to_guest<P: Template>(
        &self,
        visitor: &Visitor,
        page: impl FnOnce(&Token) -> P,
    ) -> Result<Response, Failure> {
        if self.session(visitor).await?.is_some() {
            return Ok(self.redirect("/member"));
        }
        if let Some(guest) = &visitor.guest {
            return Ok(render(StatusCode::OK, &page(guest)));
        }
        let guest = Token::random()?;
        let response = render(StatusCode::OK, &page(&guest));
        Ok(with_cookie(
            response,
            Cookie::Guest,
            Some(&guest),
            self,
            visitor,
        ))
    }
}
