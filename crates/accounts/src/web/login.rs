//! Logging in.

use askama::Template;
use axum::response::Response;

use super::account::{Sent, read};
use super::cookies::Cookie;
use super::pages::{Failure, LoginPage, ok};
use super::proof::{Proof, Refused};
use super::visitor::PageRequest;
use crate::log::visited;
use crate::name::UserName;
use crate::token::Token;

pub(super) async fn form(request: PageRequest) -> Result<Response, Failure> {
    request
        .show_to_guest(|guest| {
            let mut page = LoginPage::new(request.app.frame_for_guest(guest));
            if request.query.as_deref() == Some("after=registered") {
                page.frame.notice = "Your account is made. Log in with it.";
            }
            page
        })
        .await
}

pub(super) async fn login(request: PageRequest, sent: Sent) -> Result<Response, Failure> {
    let form = read(sent)?;
    let guest = request.check_form(&request.visitor.guests, &form.token)?;
    let page = LoginPage {
        name: form.name.clone(),
        ..LoginPage::new(request.app.frame_for_guest(guest))
    };
    let key = UserName::parse(&form.name).ok().map(|name| name.key);
    let refused = match request.prove(key.as_deref(), form.password).await {
        Ok(proof) => {
            let key = key.unwrap_or_default();
            match enter(&request, &key, proof).await? {
                Some(response) => return Ok(response),
                None => Refused::Wrong,
            }
        }
        Err(refused) => refused,
    };
    refused.shown(page, |page| {
        visited!("login refused", request.visitor);
        page.frame.warning = "The user name or the password is wrong.".to_owned();
    })
}

/// A new session in place of the one that was there, of a browser that is known from now on; `None` if
/// the password has changed meanwhile.
async fn enter(
    request: &PageRequest,
    name_key: &str,
    proof: Proof,
) -> Result<Option<Response>, Failure> {
    let Proof { user, device } = proof;
    let (app, id) = (&request.app, user.id);
    let Some(token) = app.begin_session(user.clone()).await? else {
        return Ok(None);
    };
    let device = app.know_device(user, device).await?;
    request.end_sessions().await?;
    app.counts.logins.add(1);
    visited!("logged in", request.visitor, id);
    let response = app.redirect("/member");
    let response = request.with_device(response, device.as_ref(), name_key);
    let response = request.with_cookie(response, Cookie::Session, Some(&token));
    Ok(Some(request.with_cookie(response, Cookie::Guest, None)))
}

impl PageRequest {
    /// A page with a form for visitors who are not logged in, and the cookie that goes with it if the
    /// browser has none; a user who is logged in is redirected.
    pub(super) async fn show_to_guest<P: Template>(
        &self,
        page: impl FnOnce(&Token) -> P,
    ) -> Result<Response, Failure> {
        if self.session().await?.is_some() {
            return Ok(self.app.redirect("/member"));
        }
        if let Some(guest) = self.visitor.guests.first() {
            return Ok(ok(&page(guest)));
        }
        let guest = Token::random()?;
        let response = ok(&page(&guest));
        Ok(self.with_cookie(response, Cookie::Guest, Some(&guest)))
    }
}
