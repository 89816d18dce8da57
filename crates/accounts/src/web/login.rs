//! Logging in.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use loadline_base::limited;
use serde::Deserialize;

use super::App;
use super::account::{Sent, read};
use super::cookies::Cookie;
use super::pages::{Failure, LoginPage, render, render_throttled, too_many, with_cookie};
use super::proof::{Proof, Refused};
use super::visitor::Visitor;
use crate::log::VISITS_MAX;
use crate::name::UserName;
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
    let guest = app.check_form(&fields, &visitor.guests, &form.token)?;
    let mut page = page(&app, guest, &form.name);
    let key = UserName::parse(&form.name).ok().map(|name| name.key);
    let proven = app.prove(&visitor, &fields, key.as_deref(), form.password);
    match proven.await {
        Ok(proof) => {
            let key = key.unwrap_or_default();
            if let Some(response) = enter(&app, &visitor, &fields, &key, proof).await? {
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
    limited!(
        VISITS_MAX,
        Instant::now(),
        |more| tracing::info!(address = %visitor.address, "accounts: login refused{more}")
    );
    page.frame.warning = "The user name or the password is wrong.".to_owned();
    Ok(render(StatusCode::FORBIDDEN, &page))
}

/// A new session in place of the one that was there, of a browser that is known from now on; `None` if
/// the password has changed meanwhile.
async fn enter(
    app: &App,
    visitor: &Visitor,
    fields: &HeaderMap,
    name_key: &str,
    proof: Proof,
) -> Result<Option<Response>, Failure> {
    let Proof { user, device } = proof;
    let id = user.id;
    let Some(token) = app.begin_session(user.clone()).await? else {
        return Ok(None);
    };
    let device = app.know_device(user, device).await?;
    app.end_sessions(visitor).await?;
    app.counts.logins.add(1);
    limited!(
        VISITS_MAX,
        Instant::now(),
        |more| tracing::info!(user_id = id, address = %visitor.address, "accounts: logged in{more}")
    );
    let response = app.redirect("/member");
    let response = app.with_device(response, device.as_ref(), visitor, fields, name_key);
    let response = with_cookie(response, Cookie::Session, Some(&token), app, visitor);
    let response = with_cookie(response, Cookie::Guest, None, app, visitor);
    Ok(Some(response))
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
        if let Some(guest) = visitor.guests.first() {
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
