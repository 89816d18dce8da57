//! What pages are made of: the templates and their values, and answers.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::sync::Arc;
use std::time::Duration;

use super::App;
use super::visitor::{Session, Visitor};
use crate::hashing::HashError;
use crate::log::failed;
use crate::store::StoreError;
use crate::token::Token;

/// Seconds after which to try again what failed because a database or time was missing.
const RETRY_AFTER: &str = "2";

/// What every page shows.
pub(super) struct Frame {
    /// The path that all pages are below.
    pub(super) base: String,
    /// The user who is logged in.
    pub(super) user: Option<String>,
    /// What forms carry to prove that they are from here; empty where there is no form.
    pub(super) form_token: String,
    /// What has just been done.
    pub(super) notice: &'static str,
    /// What went wrong, for all of the page.
    pub(super) warning: String,
}

/// A page of the app, in its frame.
pub(super) trait FormPage: Template {
    fn frame(&mut self) -> &mut Frame;
}

/// Pages: their templates, and the values beside the frame, which are empty at first.
macro_rules! pages {
    ($($page:ident = $path:literal { $($value:ident: $type:ty),* })+) => {$(
        #[derive(Template)]
        #[template(path = $path)]
        pub(super) struct $page {
            pub(super) frame: Frame,
            $(pub(super) $value: $type,)*
        }

        impl $page {
            pub(super) fn new(frame: Frame) -> Self {
                Self { frame, $($value: <$type>::default(),)* }
            }
        }

        impl FormPage for $page {
            fn frame(&mut self) -> &mut Frame {
                &mut self.frame
            }
        }
    )+};
}

type Warning = &'static str;

pages! {
    Home = "home.html" {}
    RegisterPage = "register.html" {
        name: String, name_warning: Warning, password_warning: Warning, repeat_warning: Warning
    }
    LoginPage = "login.html" { name: String }
    Member = "member.html" {}
    PasswordPage = "password.html" {
        current_warning: Warning, password_warning: Warning, repeat_warning: Warning
    }
    DeletePage = "delete.html" { current_warning: Warning }
    Problem = "problem.html" { title: &'static str, text: &'static str }
}

/// Why a request has another answer than the page it was for.
#[derive(Clone)]
pub(super) enum Failure {
    /// The database or the time for a hash is not there: 503.
    Unavailable,
    /// A mistake of ours or of the machine: 500.
    Broken(String),
    /// Nobody is logged in.
    NotLoggedIn,
    /// A form whose token is missing, or of another browser.
    Forged,
    /// A form that cannot be read.
    Unreadable(StatusCode),
}

impl From<StoreError> for Failure {
    fn from(_: StoreError) -> Self {
        Self::Unavailable
    }
}

impl From<HashError> for Failure {
    fn from(error: HashError) -> Self {
        match error {
            HashError::Busy => Self::Unavailable,
            error => Self::Broken(error.to_string()),
        }
    }
}

impl From<getrandom::Error> for Failure {
    fn from(error: getrandom::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl App {
    pub(super) fn frame(&self) -> Frame {
        Frame {
            base: self.options.base.clone(),
            user: None,
            form_token: String::new(),
            notice: "",
            warning: String::new(),
        }
    }

    /// The frame for a visitor who is not logged in and may send forms.
    pub(super) fn frame_for_guest(&self, guest: &Token) -> Frame {
        Frame {
            form_token: guest.for_forms(),
            ..self.frame()
        }
    }

    /// The frame for a user who is logged in.
    pub(super) fn frame_of(&self, session: &Session) -> Frame {
        Frame {
            user: Some(session.row.name.shown.clone()),
            form_token: session.token.for_forms(),
            ..self.frame()
        }
    }

    /// To another page of the app, as the answer to a form (303).
    pub(super) fn redirect(&self, to: &str) -> Response {
        Redirect::to(&format!("{}{to}", self.options.base)).into_response()
    }
}

impl IntoResponse for Failure {
    /// An answer that says nothing yet: what is shown needs the app, see [`with_failure_shown`].
    fn into_response(self) -> Response {
        Extension(self).into_response()
    }
}

/// The answer, with the page of a failure if it is one.
pub(super) async fn with_failure_shown(
    State(app): State<Arc<App>>,
    mut response: Response,
) -> Response {
    match response.extensions_mut().remove::<Failure>() {
        Some(failure) => app.show(failure),
        None => response,
    }
}

impl App {
    fn show(&self, failure: Failure) -> Response {
        let (status, title, text) = match failure {
            Failure::NotLoggedIn => return self.redirect("/login"),
            Failure::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Not now",
                "Accounts cannot be reached at the moment. Please try again in a little while.",
            ),
            Failure::Broken(error) => {
                failed!(error, "{error}");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Something went wrong",
                    "That is not your fault. Please try again later.",
                )
            }
            Failure::Forged => (
                StatusCode::FORBIDDEN,
                "This form has expired",
                "Nothing was done. Please go back, load the page again and send the form once more.",
            ),
            Failure::Unreadable(status) => (
                status,
                "This form cannot be read",
                "Nothing was done. Please go back and send the form once more.",
            ),
        };
        let mut response = problem(self, status, title, text);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let after = HeaderValue::from_static(RETRY_AFTER);
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}

fn problem(app: &App, status: StatusCode, title: &'static str, text: &'static str) -> Response {
    let mut page = Problem::new(app.frame());
    (page.title, page.text) = (title, text);
    render(status, &page)
}

/// The page that was asked for.
pub(super) fn ok(page: &impl Template) -> Response {
    render(StatusCode::OK, page)
}

/// A page.
pub(super) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => {
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            failed!(error, "a page: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The page of a form that was sent too often, with when the next try may come.
pub(super) fn render_throttled(mut page: impl FormPage, wait: Duration) -> Response {
    page.frame().warning = too_many(wait);
    let mut response = render(StatusCode::TOO_MANY_REQUESTS, &page);
    let seconds = HeaderValue::from(seconds(wait));
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// The same in words.
fn too_many(wait: Duration) -> String {
    match seconds(wait) {
        1 => "Too many tries. Please wait a second.".to_owned(),
        seconds @ 2..=90 => format!("Too many tries. Please wait {seconds} seconds."),
        seconds => format!(
            "Too many tries. Please wait {} minutes.",
            seconds.div_ceil(60)
        ),
    }
}

fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

pub(super) async fn style() -> Response {
    let kind = HeaderValue::from_static("text/css; charset=utf-8");
    let cache = HeaderValue::from_static("max-age=3600");
    let fields = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache)];
    (fields, include_str!("../../assets/style.css")).into_response()
}

pub(super) async fn not_found(State(app): State<Arc<App>>) -> Response {
    problem(
        &app,
        StatusCode::NOT_FOUND,
        "No such page",
        "There is nothing here.",
    )
}

pub(super) async fn not_allowed(
    State(app): State<Arc<App>>,
    Extension(_): Extension<Visitor>,
) -> Response {
    problem(
        &app,
        StatusCode::METHOD_NOT_ALLOWED,
        "Not this way",
        "This page cannot be asked for in this way.",
    )
}
