//! Statements about devices: browsers that an account knows because they have logged in there.

use super::run::{change, fetch, keep_newest, locking};
use super::{Lifetime, Store, StoreError, User};
use crate::limits::DEVICES_PER_USER_MAX;

impl Store {
    /// Whether the account of a name knows the browser that has this token.
    pub(crate) async fn is_device(
        &self,
        token_hash: String,
        name_key: String,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let row: Option<(i64,)> = fetch!(
            self,
            "SELECT users.id FROM devices JOIN users ON users.id = devices.user_id \
             WHERE devices.token_hash = $1 AND users.name_key = $2 AND devices.expires_ms > $3",
            [token_hash, name_key, now_ms]
        )?;
        Ok(row.is_some())
    }

    /// Gives a browser that the user knows another token. It may have been forgotten meanwhile.
    pub(crate) async fn renew_device(
        &self,
        [old_hash, new_hash]: [String; 2],
        user_id: i64,
        lifetime: Lifetime,
    ) -> Result<bool, StoreError> {
        let Lifetime { now_ms, expires_ms } = lifetime;
        let renewed = change!(
            self,
            "UPDATE devices SET token_hash = $1, created_ms = $2, expires_ms = $3 \
             WHERE token_hash = $4 AND user_id = $5",
            [new_hash, now_ms, expires_ms, old_hash, user_id]
        )?;
        Ok(renewed > 0)
    }

    /// Makes a browser known to a user, if the password is still the one that was verified; the user
    /// forgets the one that logged in least recently if there are too many.
    pub(crate) async fn add_device(
        &self,
        token_hash: String,
        user: User,
        lifetime: Lifetime,
    ) -> Result<bool, StoreError> {
        let User { id, password_hash } = user;
        let Lifetime { now_ms, expires_ms } = lifetime;
        let insert = locking!(
            self,
            "INSERT INTO devices (token_hash, user_id, created_ms, expires_ms) \
             SELECT $1, id, $2, $3 FROM users \
             WHERE id = $4 AND password_hash = $5"
        );
        let added = change!(
            self,
            insert,
            [token_hash, now_ms, expires_ms, id, password_hash]
        )?;
        if added == 0 {
            return Ok(false);
        }
        let kept = DEVICES_PER_USER_MAX;
        keep_newest!(self, "devices", id, kept)?;
        Ok(true)
    }
}
