//! Devices: browsers that an account knows, because they have logged in there.
//!
//! A login leaves a cookie that outlasts the session. It opens nothing: its owner still needs the
//! password, and has tries of its own, which others cannot use up (OWASP calls it a device cookie).
//! Each login makes a new one in its place; a new password and the end of the account end all of them.

use axum::http::header;
use axum::response::Response;

use super::cookies::Cookie;
use super::pages::Failure;
use super::visitor::PageRequest;
use super::{App, as_ms};
use crate::store::{Lifetime, User};
use crate::token::Token;

impl PageRequest {
    /// The token by which the account of a name knows the browser, if it does.
    pub(super) async fn device(&self, name_key: &str) -> Result<Option<Token>, Failure> {
        let App { options, store, .. } = &*self.app;
        let now_ms = options.clock.now_ms();
        for token in Cookie::Device(name_key).found(&self.fields, self.visitor.is_secure) {
            let hash = token.stored_of_device();
            let name_key = name_key.to_owned();
            if store.is_device(hash, name_key, now_ms).await? {
                return Ok(Some(token));
            }
        }
        Ok(None)
    }

    /// Adds the cookie of a browser that was made known; one that is not keeps what it has.
    pub(super) fn with_device(
        &self,
        mut response: Response,
        token: Option<&Token>,
        name_key: &str,
    ) -> Response {
        let Some(token) = token else {
            return response;
        };
        let (options, is_secure) = (&self.app.options, self.visitor.is_secure);
        let cookie = Cookie::Device(name_key);
        let max_age = Some(options.device_max.as_secs());
        let ended = cookie.end_others(&self.fields, is_secure, &options.base);
        let set = cookie.set(Some(token), max_age, is_secure, &options.base);
        for field in ended.into_iter().chain(set) {
            response.headers_mut().append(header::SET_COOKIE, field);
        }
        response
    }

    /// Adds a cookie that ends with the browser to a response, or ends it.
    pub(super) fn with_cookie(
        &self,
        mut response: Response,
        cookie: Cookie<'_>,
        token: Option<&Token>,
    ) -> Response {
        let base = &self.app.options.base;
        if let Some(field) = cookie.set(token, None, self.visitor.is_secure, base) {
            response.headers_mut().append(header::SET_COOKIE, field);
        }
        response
    }
}

impl App {
    /// Makes the browser known to a user whose password was verified, by a new token in place of the
    /// one that was known. `None` if the password has changed since.
    pub(super) async fn know_device(
        &self,
        user: User,
        known: Option<Token>,
    ) -> Result<Option<Token>, Failure> {
        let token = Token::random()?;
        let hash = token.stored_of_device();
        let now_ms = self.options.clock.now_ms();
        let lifetime = Lifetime {
            now_ms,
            expires_ms: now_ms.saturating_add(as_ms(self.options.device_max)),
        };
        if let Some(known) = known {
            let hashes = [known.stored_of_device(), hash.clone()];
            if self.store.renew_device(hashes, user.id, lifetime).await? {
                return Ok(Some(token));
            }
        }
        let added = self.store.add_device(hash, user, lifetime).await?;
        Ok(added.then_some(token))
    }
}
