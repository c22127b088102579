-- table jobs
CREATE TABLE jobs (
  -- Newer jobs have greater numbers. A number is never used twice: the
  -- greatest one stays in jobs or in expired.
  seq INTEGER PRIMARY KEY,
  id  TEXT NOT NULL,

  state    TEXT    NOT NULL,
  revision INTEGER NOT NULL,

  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  launched  TEXT,
  started   TEXT,
  ended     TEXT,
  delivered TEXT,
  announced TEXT,

  request_key     TEXT,
  idempotency_key TEXT,
  join_key        TEXT,

  -- What is selected by. project and session repeat the spec; search is name,
  -- tool, command and directory in lower case, a line each.
  project TEXT NOT NULL,
  session TEXT NOT NULL,
  search  TEXT NOT NULL,

  pid            INTEGER NOT NULL,
  reason         TEXT    NOT NULL,
  run_used       INTEGER NOT NULL,
  run_since      INTEGER NOT NULL,
  result_kind    TEXT    NOT NULL,
  output_bytes   INTEGER NOT NULL,
  output_dropped INTEGER NOT NULL,
  unfollowed     INTEGER NOT NULL,

  -- How many rows of questions belong to the job: most have none, and reading
  -- those costs no look at the other table.
  questions INTEGER NOT NULL,

  -- JSON objects; spec_sum is the CRC-32C of spec, so that a command that a
  -- failing disk changed is never run or shown as if it were the right one.
  exit     TEXT,
  stop     TEXT,
  progress TEXT,
  spec_sum INTEGER NOT NULL,
  spec     TEXT    NOT NULL,

  CONSTRAINT id_given CHECK (id <> ''),
  CONSTRAINT state_known CHECK (state IN (
    'queued', 'starting', 'running', 'waiting', 'stopping',
    'succeeded', 'failed', 'timed_out', 'unanswered', 'cancelled', 'errored', 'lost')),
  CONSTRAINT revision_counts_from_one CHECK (revision >= 1),
  -- A job is final if and only if its end is known.
  CONSTRAINT final_is_ended CHECK (
    (state IN ('queued', 'starting', 'running', 'waiting', 'stopping')) = (ended IS NULL)),
  -- Intent before effect: what may run has the instant of its launch.
  CONSTRAINT live_process_was_launched CHECK (
    launched IS NOT NULL OR state NOT IN ('starting', 'running', 'waiting', 'stopping')),
  -- Nothing is ended without a cause.
  CONSTRAINT stopping_has_a_cause CHECK (stop IS NOT NULL OR state <> 'stopping'),
  -- A job waits for its questions.
  CONSTRAINT waiting_has_a_question CHECK (questions >= (state = 'waiting')),
  -- Only a final result is delivered.
  CONSTRAINT delivered_is_ended CHECK (delivered IS NULL OR ended IS NOT NULL),
  -- An identical call never gets a job that is cancelled, unanswered or
  -- delivered: such a job has given its join key up.
  CONSTRAINT join_is_open CHECK (
    join_key IS NULL OR (delivered IS NULL AND state NOT IN ('cancelled', 'unanswered'))),
  -- A job without a key holds none, rather than an empty one.
  CONSTRAINT keys_are_not_empty CHECK (request_key <> '' AND idempotency_key <> '' AND join_key <> ''),
  CONSTRAINT result_kind_known CHECK (result_kind IN ('', 'text', 'json', 'mcp', 'error')),
  CONSTRAINT amounts_are_not_negative CHECK (run_used >= 0 AND output_bytes >= 0 AND output_dropped >= 0),
  CONSTRAINT unfollowed_is_a_truth_value CHECK (unfollowed IN (0, 1))
) STRICT;

-- index jobs_id
CREATE UNIQUE INDEX jobs_id ON jobs (id);

-- index jobs_request
CREATE UNIQUE INDEX jobs_request ON jobs (request_key) WHERE request_key IS NOT NULL;

-- index jobs_idempotency
CREATE UNIQUE INDEX jobs_idempotency ON jobs (idempotency_key, project) WHERE idempotency_key IS NOT NULL;

-- index jobs_join
CREATE UNIQUE INDEX jobs_join ON jobs (join_key) WHERE join_key IS NOT NULL;

-- index jobs_pending
CREATE INDEX jobs_pending ON jobs (ended, seq) WHERE delivered IS NULL;

-- table questions
CREATE TABLE questions (
  job      INTEGER NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  -- The order in which they were asked, from 0.
  position INTEGER NOT NULL,

  id         TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  number     INTEGER NOT NULL,
  message    TEXT    NOT NULL,
  schema     TEXT,
  secret     INTEGER NOT NULL,
  fault      TEXT    NOT NULL,
  consented  INTEGER NOT NULL,
  asked      TEXT    NOT NULL,
  timeout    INTEGER NOT NULL,
  on_timeout TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  closed     TEXT,
  answer     TEXT,
  answer_by  TEXT    NOT NULL,

  PRIMARY KEY (job, position),
  -- An asker that asks again gets the same question.
  CONSTRAINT one_question_per_id UNIQUE (job, id),
  -- A client never sees a key twice.
  CONSTRAINT one_question_per_key UNIQUE (job, key),
  CONSTRAINT state_known CHECK (state IN ('open', 'answered', 'declined', 'unanswered', 'withdrawn')),
  -- A question is open until it is closed.
  CONSTRAINT open_is_not_closed CHECK ((state = 'open') = (closed IS NULL)),
  -- Only an accepted answer has content, and a secret's is never stored.
  CONSTRAINT answer_is_accepted CHECK (answer IS NULL OR (state = 'answered' AND secret = 0)),
  CONSTRAINT truth_values CHECK (secret IN (0, 1) AND consented IN (0, 1))
) STRICT, WITHOUT ROWID;

-- table events
CREATE TABLE events (
  job      INTEGER NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  revision INTEGER NOT NULL,
  event    TEXT    NOT NULL,
  state    TEXT    NOT NULL, -- after the event
  at       TEXT    NOT NULL,
  note     TEXT    NOT NULL,

  -- A revision is the outcome of one event at most.
  PRIMARY KEY (job, revision),
  CONSTRAINT state_known CHECK (state IN (
    'queued', 'starting', 'running', 'waiting', 'stopping',
    'succeeded', 'failed', 'timed_out', 'unanswered', 'cancelled', 'errored', 'lost'))
) STRICT, WITHOUT ROWID;

-- table results
CREATE TABLE results (
  -- A job has one result at most.
  job  INTEGER PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
  body BLOB NOT NULL
) STRICT;

-- table settings
CREATE TABLE settings (
  name  TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  CONSTRAINT name_given CHECK (name <> '')
) STRICT, WITHOUT ROWID;

-- table expired
CREATE TABLE expired (
  seq     INTEGER PRIMARY KEY,
  id      TEXT NOT NULL,
  expired TEXT NOT NULL
) STRICT;

-- index expired_id
CREATE UNIQUE INDEX expired_id ON expired (id);

