CREATE TABLE devices (
    token_hash TEXT NOT NULL PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX devices_by_user ON devices (user_id);
CREATE INDEX devices_by_expiry ON devices (expires_ms);
