CREATE TABLE devices (
    token_hash TEXT NOT NULL PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);

CREATE INDEX devices_by_user ON devices (user_id);
CREATE INDEX devices_by_expiry ON devices (expires_ms);
