//! Making an account.

use axum::http::StatusCode;
use axum::response::Response;

use super::App;
use super::account::{Filled, Sent, read};
use super::pages::{Failure, RegisterPage, render, render_throttled};
use super::visitor::PageRequest;
use crate::log::visited;
use crate::name::UserName;
use crate::password;
use crate::store::StoreError;

pub(super) async fn form(request: PageRequest) -> Result<Response, Failure> {
    let page = |guest: &_| RegisterPage::new(request.app.frame_for_guest(guest));
    request.show_to_guest(page).await
}

pub(super) async fn register(request: PageRequest, sent: Sent) -> Result<Response, Failure> {
    let form = read(sent)?;
    let (app, visitor) = (&request.app, &request.visitor);
    let guest = request.check_form(&visitor.guests, &form.token)?;
    let mut page = RegisterPage {
        name: form.name.clone(),
        ..RegisterPage::new(app.frame_for_guest(guest))
    };
    let Some(name) = judge(&form, &mut page) else {
        return Ok(render(StatusCode::UNPROCESSABLE_ENTITY, &page));
    };
    // Counted whatever comes of it: trying names shows which are taken.
    let now_ms = app.options.clock.now_ms();
    if let Err(wait) = app.registrations.begin(&visitor.address, now_ms) {
        app.counts.throttled.add(1);
        return Ok(render_throttled(page, wait));
    }
    match add(app, name, form.password).await {
        Ok(true) => {
            app.counts.registered.add(1);
            visited!("registered", visitor);
            Ok(app.redirect("/login?after=registered"))
        }
        Ok(false) => {
            page.name_warning = "This user name is taken; choose another.";
            Ok(render(StatusCode::CONFLICT, &page))
        }
        Err(error) => {
            app.registrations.give_back(&visitor.address);
            Err(error)
        }
    }
}

/// Writes onto the page what is wrong with the form; the name, if nothing is.
fn judge(form: &Filled, page: &mut RegisterPage) -> Option<UserName> {
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

/// Adds the account; false: the name is taken.
async fn add(app: &App, name: UserName, password: String) -> Result<bool, Failure> {
    let hash = app.hasher.hash(password).await?;
    let now_ms = app.options.clock.now_ms();
    match app.store.add_user(name, hash, now_ms).await {
        Ok(()) => Ok(true),
        Err(StoreError::Taken) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
