-- +goose Up

-- Columns by which tasks are found without reading all of them. Each is told by
-- the task's record too.
ALTER TABLE tasks ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN moving INTEGER NOT NULL DEFAULT 0;

CREATE TEMP TABLE told (n INTEGER PRIMARY KEY, record TEXT);
INSERT INTO told
SELECT n, coalesce(json_extract(doc, '$.value'), (SELECT CAST(data AS TEXT) FROM blobs WHERE digest = unhex(json_extract(tasks.doc, '$.sha256')))) AS record
FROM tasks;
UPDATE tasks SET
    workspace  = coalesce((SELECT json_extract(record, '$.workspace') FROM told WHERE told.n = tasks.n), ''),
    created_by = coalesce((SELECT json_extract(record, '$.created_by') FROM told WHERE told.n = tasks.n), ''),
    moving     = coalesce((SELECT json_extract(record, '$.moving') IS NOT NULL FROM told WHERE told.n = tasks.n), 0);
DROP TABLE told;

CREATE INDEX tasks_work ON tasks (repository, branch);
CREATE INDEX tasks_workspace ON tasks (workspace) WHERE workspace <> '';
CREATE INDEX tasks_creator ON tasks (created_by);
CREATE INDEX tasks_moving ON tasks (n) WHERE moving = 1;

PRAGMA user_version = 3;
