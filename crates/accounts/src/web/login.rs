//! Logging in.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;

use super::App;
use super::account::{Sent, read};
use super::cookies::Cookie;
use super::pages::{Failure, LoginPage, render, with_cookie};
use super::proof::{Proof, Refused};
use super::visitor::Visitor;
use crate::log::visited;
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
        let mut page = LoginPage::new(app.frame_for_guest(guest));
        if uri.query() == Some("after=registered") {
            page.frame.notice = "Your account is made. Log in with it.";
        }
        page
    })
    .await
}

pub(super) async fn login(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<LoginForm>,
) -> Result<Response, Failure> {
    let form = read(sent)?;
    let guest = app.check_form(&fields, &visitor.guests, &form.token)?;
    let page = LoginPage {
        name: form.name.clone(),
        ..LoginPage::new(app.frame_for_guest(guest))
    };
    let key = UserName::parse(&form.name).ok().map(|name| name.key);
    let proven = app.prove(&visitor, &fields, key.as_deref(), form.password);
    let refused = match proven.await {
        Ok(proof) => {
            let key = key.unwrap_or_default();
            match enter(&app, &visitor, &fields, &key, proof).await? {
                Some(response) => return Ok(response),
                None => Refused::Wrong,
            }
        }
        Err(refused) => refused,
    };
    refused.shown(page, |page| {
        visited!("login refused", visitor);
        page.frame.warning = "The user name or the password is wrong.".to_owned();
    })
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
    visited!("logged in", visitor, id);
    let response = app.redirect("/member");
    let response = app.with_device(response, device.as_ref(), visitor, fields, name_key);
    let response = with_cookie(response, Cookie::Session, Some(&token), app, visitor);
    let response = with_cookie(response, Cookie::Guest, None, app, visitor);
    Ok(Some(response))
}

impl App {
    /// A page with a form for visitors who are not logged in, and the cookie that goes with it if the
    /// browser has none; a user who is logged in is redirected.
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
