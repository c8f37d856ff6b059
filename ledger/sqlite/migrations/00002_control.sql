-- +goose Up

-- taken counts the ids that are used up in the generation.
CREATE TABLE channels (
    rid        INTEGER PRIMARY KEY REFERENCES runs (rid),
    generation INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    taken      INTEGER NOT NULL
) STRICT;

-- A request is open until it is rejected or its call has an outcome.
CREATE TABLE requests (
    n          INTEGER PRIMARY KEY,
    rid        INTEGER NOT NULL REFERENCES channels (rid),
    generation INTEGER NOT NULL,
    id         TEXT NOT NULL,
    open       INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX requests_id ON requests (rid, id, generation);
CREATE INDEX requests_newest ON requests (rid, generation);
CREATE INDEX requests_open ON requests (rid, generation) WHERE open = 1;

-- made is the digest of what a task was when it was made.
CREATE TABLE tasks (
    n          INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    key        TEXT NOT NULL,
    repository TEXT NOT NULL,
    branch     TEXT NOT NULL,
    state      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    made       BLOB NOT NULL,
    doc        TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX tasks_key ON tasks (key) WHERE key <> '';
CREATE UNIQUE INDEX tasks_branch ON tasks (repository, branch) WHERE branch <> '' AND state IN ('active', 'blocked');

-- Each version of a task has one entry.
CREATE TABLE task_activity (
    task INTEGER NOT NULL REFERENCES tasks (n),
    n    INTEGER NOT NULL,
    doc  TEXT NOT NULL,
    PRIMARY KEY (task, n)
) STRICT, WITHOUT ROWID;

-- The calls of a run's turns are a range of the ids, so that those of requests
-- are not even passed by.
DROP INDEX calls_run;
CREATE INDEX calls_open ON calls (rid) WHERE state IN ('prepared', 'judged', 'asked', 'decided', 'started');

PRAGMA user_version = 2;
