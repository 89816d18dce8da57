//! Making an account.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::App;
use super::account::{Sent, read};
use super::pages::{Failed, Failure, RegisterPage, render, too_many, with_cookie, with_wait};
use super::visitor::{Cookie, Visitor};
use crate::name::UserName;
use crate::password;
use crate::store::StoreError;
use crate::token::Token;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RegisterForm {
    token: String,
    name: String,
    password: String,
    repeat: String,
}

pub(super) async fn form(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Failed> {
    let session = app
        .session(&visitor)
        .await
        .map_err(|error| app.failed(error))?;
    if session.is_some() {
        return Ok(app.redirect("/member"));
    }
    let (guest, is_new) = app.guest(&visitor).map_err(|error| app.failed(error))?;
    let response = render(StatusCode::OK, &page(&app, &guest, ""));
    Ok(match is_new {
        true => with_cookie(response, Cookie::Guest, Some(&guest), &app, &visitor),
        false => response,
    })
}

fn page(app: &App, guest: &Token, name: &str) -> RegisterPage {
    let mut frame = app.frame();
    frame.form_token = guest.for_forms();
    RegisterPage {
        frame,
        name: name.to_owned(),
        name_warning: "",
        password_warning: "",
        repeat_warning: "",
    }
}

pub(super) async fn register(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    fields: HeaderMap,
    sent: Sent<RegisterForm>,
) -> Result<Response, Failed> {
    let failed = |error: Failure| app.failed(error);
    let form = read(sent).map_err(failed)?;
    let guest = visitor.guest.clone();
    app.check_form(&fields, guest.as_ref(), &form.token)
        .map_err(failed)?;
    let guest = guest.ok_or(Failure::Forged).map_err(failed)?;
    let mut page = page(&app, &guest, &form.name);
    let Some(name) = judge(&form, &mut page) else {
        return Ok(render(StatusCode::UNPROCESSABLE_ENTITY, &page));
    };
    // Counted whatever comes of it: trying names shows which are taken.
    let now_ms = app.options.clock.now_ms();
    if let Err(wait) = app.registrations.begin(&visitor.address, now_ms) {
        app.counts.throttled.add(1);
        page.frame.warning = too_many(wait);
        return Ok(with_wait(
            render(StatusCode::TOO_MANY_REQUESTS, &page),
            wait,
        ));
    }
    match add(&app, name, form.password).await {
        Ok(()) => {
            app.counts.registered.add(1);
            tracing::info!(address = %visitor.address, "accounts: registered");
            Ok(app.redirect("/login?after=registered"))
        }
        Err(Refusal::Taken) => {
            page.name_warning = "This user name is taken; choose another.";
            Ok(render(StatusCode::CONFLICT, &page))
        }
        Err(Refusal::Failure(error)) => {
            app.registrations.give_back(&visitor.address);
            Err(app.failed(error))
        }
    }
}

/// Writes onto the page what is wrong with the form; the name, if nothing is.
fn judge(form: &RegisterForm, page: &mut RegisterPage) -> Option<UserName> {
    let name = UserName::parse(&form.name);
    match &name {
        Ok(name) => {
            page.password_warning = password::check(&form.password, name)
                .err()
                .unwrap_or_default();
        }
        Err(warning) => page.name_warning = warning,
    }
    if form.password != form.repeat {
        page.repeat_warning = "The two passwords differ.";
    }
    let is_fine = page.password_warning.is_empty() && page.repeat_warning.is_empty();
    name.ok().filter(|_| is_fine)
}

enum Refusal {
    Taken,
    Failure(Failure),
}

async fn add(app: &App, name: UserName, password: String) -> Result<(), Refusal> {
    let hash = app.hasher.hash(password).await;
    let hash = hash.map_err(|error| Refusal::Failure(error.into()))?;
    let now_ms = app.options.clock.now_ms();
    match app.store.add_user(name, hash, now_ms).await {
        Ok(()) => Ok(()),
        Err(StoreError::Taken) => Err(Refusal::Taken),
        Err(error) => Err(Refusal::Failure(error.into())),
    }
}
