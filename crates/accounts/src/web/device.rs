//! Devices: browsers that an account knows, because they have logged in there.
//!
//! A login leaves a cookie that outlasts the session. It opens nothing: its owner still needs the
//! password, and has tries of its own, which others cannot use up (OWASP calls it a device cookie).
//! Each login makes a new one in its place; a new password and the end of the account end all of them.

use axum::http::{HeaderMap, header};
use axum::response::Response;

use super::cookies::Cookie;
use super::pages::{Failure, with_field};
use super::visitor::Visitor;
use super::{App, as_ms};
use crate::store::{Lifetime, User};
use crate::token::Token;

impl App {
    /// The token by which the account of a name knows the browser, if it does.
    pub(super) async fn device(
        &self,
        visitor: &Visitor,
        fields: &HeaderMap,
        name_key: &str,
    ) -> Result<Option<Token>, Failure> {
        let now_ms = self.options.clock.now_ms();
        for token in Cookie::Device(name_key).found(fields, visitor.is_secure) {
            let hash = token.stored_of_device();
            let name_key = name_key.to_owned();
            if self.store.is_device(hash, name_key, now_ms).await? {
                return Ok(Some(token));
            }
        }
        Ok(None)
    }

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

    /// Adds the cookie of a browser that was made known; one that is not keeps what it has.
    pub(super) fn with_device(
        &self,
        mut response: Response,
        token: Option<&Token>,
        visitor: &Visitor,
        fields: &HeaderMap,
        name_key: &str,
    ) -> Response {
        let Some(token) = token else {
            return response;
        };
        let (cookie, base) = (Cookie::Device(name_key), &self.options.base);
        let max_age = Some(self.options.device_max.as_secs());
        for ended in cookie.end_others(fields, visitor.is_secure, base) {
            response.headers_mut().append(header::SET_COOKIE, ended);
        }
        let field = cookie.set(Some(token), max_age, visitor.is_secure, base);
        with_field(response, field)
    }
}
