-- +goose Up

-- Content by digest, once. Events and rows refer to it.
CREATE TABLE blobs (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    data   BLOB NOT NULL
) STRICT;

CREATE TABLE instances (
    id  TEXT PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;

-- Run 0 stands for what belongs to no run.
CREATE TABLE runs (
    rid      INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    state    TEXT NOT NULL,
    parent   TEXT NOT NULL,
    root     TEXT NOT NULL,
    fence    INTEGER NOT NULL DEFAULT 0,
    instance TEXT REFERENCES instances (id),
    doc      TEXT NOT NULL
) STRICT;
CREATE INDEX runs_parent ON runs (parent) WHERE parent <> '';
INSERT INTO runs (rid, id, state, parent, root, doc) VALUES (0, '', '', '', '', '{}');

-- n counts all events of the ledger in the order of their commits.
CREATE TABLE events (
    n    INTEGER PRIMARY KEY,
    rid  INTEGER NOT NULL REFERENCES runs (rid),
    seq  INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_chain ON events (rid, seq);

CREATE TABLE pools (
    rid INTEGER PRIMARY KEY REFERENCES runs (rid),
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE turns (
    rid     INTEGER NOT NULL REFERENCES runs (rid),
    n       INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state   TEXT NOT NULL,
    doc     TEXT NOT NULL,
    PRIMARY KEY (rid, n, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
    cid   INTEGER PRIMARY KEY,
    id    TEXT NOT NULL UNIQUE,
    rid   INTEGER NOT NULL REFERENCES runs (rid),
    state TEXT NOT NULL,
    doc   TEXT NOT NULL
) STRICT;
CREATE INDEX calls_run ON calls (rid);

-- Review qN is row N.
CREATE TABLE reviews (
    n     INTEGER PRIMARY KEY AUTOINCREMENT,
    rid   INTEGER NOT NULL REFERENCES runs (rid),
    call  TEXT NOT NULL REFERENCES calls (id),
    state TEXT NOT NULL,
    doc   TEXT NOT NULL
) STRICT;
CREATE INDEX reviews_run ON reviews (rid);
CREATE INDEX reviews_call ON reviews (call);
CREATE INDEX reviews_open ON reviews (n) WHERE state = 'open';

-- Grant gN is row N.
CREATE TABLE grants (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    rid     INTEGER NOT NULL REFERENCES runs (rid),
    revoked INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX grants_run ON grants (rid);

CREATE TABLE workspaces (
    n          INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    common_dir TEXT NOT NULL,
    name       TEXT NOT NULL,
    removed    INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX workspaces_name ON workspaces (common_dir, name) WHERE removed = 0;

CREATE TABLE sandboxes (
    n        INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    run      TEXT NOT NULL,
    instance TEXT NOT NULL,
    state    TEXT NOT NULL,
    doc      TEXT NOT NULL
) STRICT;
CREATE INDEX sandboxes_run ON sandboxes (run);
CREATE INDEX sandboxes_state ON sandboxes (state) WHERE state <> 'removed';

PRAGMA application_id = 1128352083;
PRAGMA user_version = 1;
