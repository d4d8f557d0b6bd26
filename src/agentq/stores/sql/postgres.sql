-- Every statement here is one round trip. Batches travel as arrays, one per column. Statements that
-- lock say so in their order: ascending keys, so that two batches cannot wait for each other.

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: begin_reading
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- The server's time. Every transaction that writes asks for it, and says with it how long the server
-- shall wait for a client that has fallen silent in the middle (a cut cable, a stopped process)
-- before it takes the locks away. A setting of this transaction only: poolers do not mind.

-- name: moment
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       set_config('idle_in_transaction_session_timeout', '20s', true);

-- name: notify
SELECT pg_notify('agentq', :topics::text);

-- name: lanes
SELECT lanes FROM head;

-- name: ledger_id
SELECT ledger_id FROM head;

-- Which database this is, however it was reached: the moment at which its server started, and the
-- numbers of the database and of a table. `callers_facts` asks another connection the same, and needs
-- no right to do so; it says as well how that one is set.

-- name: identity
SELECT floor(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
       'outbox'::regclass::oid::bigint, current_schema()::text, current_setting('search_path');

-- name: callers_facts
SELECT floor(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
       (SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = :schema::text AND c.relname = 'outbox'),
       current_database()::text, current_setting('search_path'), current_setting('lock_timeout'),
       floor(extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint,
       current_setting('transaction_read_only'),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: resources
SELECT name, max_held, rate, level, level_at, next_at FROM resources
WHERE name = ANY (:resources::text[]) ORDER BY name;

-- Two who want to take a place of a resource with limits take turns; `holders_of` comes after, so
-- that the second sees what the first has taken. One without limits has no row to lock, and one
-- place, which one of the two cannot insert.

-- name: lock_resources
SELECT name, max_held, rate, level, level_at, next_at FROM resources
WHERE name = ANY (:resources::text[]) ORDER BY name FOR UPDATE;

-- name: holders_of
SELECT h.resource, h.place, s.id FROM holds h JOIN specs s ON s.key = h.key
WHERE h.resource = ANY (:resources::text[]) ORDER BY h.resource, h.place;

-- name: next_wake
SELECT coalesce(min(moment), 0) FROM (
    SELECT min(wake_at) AS moment FROM tasks WHERE wake_at > 0
    UNION ALL SELECT min(next_at) FROM roles WHERE next_at > coalesce(:now::bigint,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    UNION ALL SELECT min(next_at) FROM resources WHERE next_at > coalesce(:now::bigint,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)) AS moments;

-- name: renew
WITH held AS MATERIALIZED (
    SELECT t.key, u.lease_ms
    FROM unnest(:keys::bigint[], :epochs::bigint[], :leases::bigint[]) AS u (key, epoch, lease_ms)
    JOIN tasks t ON t.key = u.key AND t.epoch = u.epoch AND t.state = 2
    ORDER BY t.key FOR UPDATE OF t
)
UPDATE tasks t SET wake_at = greatest(t.wake_at, held.lease_ms
    + coalesce(:now::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
FROM held WHERE t.key = held.key RETURNING t.key;

-- name: insert_roles
INSERT INTO roles (name) SELECT * FROM unnest(:names::text[]) ON CONFLICT (name) DO NOTHING;

-- name: open_circuit
SELECT open_until FROM circuits WHERE provider = :provider::text AND (failures > 0 OR open_until >
    coalesce(:now::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint));

-- name: lock_role
SELECT id, name, max_running, max_review, paused, seen_at, provider, daily, circuit, rate, level,
       level_at, next_at
FROM roles WHERE id = :role::integer FOR UPDATE;

-- name: add_artifacts
INSERT INTO artifacts (key, epoch, name, size, sha256, media_type, at)
SELECT * FROM unnest(:keys::bigint[], :epochs::bigint[], :names::text[], :sizes::bigint[],
                     :digests::text[], :media_types::text[], :ats::bigint[])
ON CONFLICT DO NOTHING;

-- name: ack_effects
DELETE FROM outbox WHERE sequence IN (
    SELECT sequence FROM outbox WHERE sequence = ANY (:sequences::bigint[])
    ORDER BY sequence FOR UPDATE);

-- name: replan
DISCARD PLANS;

-- What a new connection is asked and told. The server shall notice within half a minute that the
-- machine of a client is gone, and end what it had begun; by default it waits two hours, with locks.

-- name: settings
SELECT current_setting('synchronous_commit'),
       current_setting('transaction_read_only'),
       current_setting('default_transaction_isolation'),
       current_setting('search_path'),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       -- In milliseconds; 0 if there is none.
       floor(extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::bigint,
       floor(extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint,
       -- These statements are planned once, not for each set of values: planning takes longer than
       -- running most of them.
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('tcp_keepalives_idle', '15', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false);

-- How long a statement may run and wait for locks, and where the tables are, where only transactions
-- can be told: in a session of its own the opening packet has said it (see postgres_limits.py).

-- name: limits
SELECT set_config('statement_timeout', :statement_timeout::text, true),
       set_config('lock_timeout', :lock_timeout::text, true),
       set_config('search_path', :search_path::text, true);

-- Ledgers of earlier versions stood in the schema public, perhaps beside tables of others. Many tools
-- keep a table of this name: as JSON it can be read whatever its columns are. Of no interest to a
-- ledger that its address puts elsewhere.

-- name: newest_in_public
SELECT coalesce(max((to_jsonb(m) ->> 'version')::bigint), 0)::bigint
FROM public.schema_migrations m
WHERE current_setting('search_path') = 'agentq' AND EXISTS (
    SELECT 1 FROM public.schema_migrations f
    WHERE to_jsonb(f) ->> 'version' = '1' AND to_jsonb(f) ->> 'name' = '0001_ledger');

-- name: migration_lock
SELECT pg_advisory_xact_lock(7263718234109);

-- name: migration_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: migration_done
INSERT INTO schema_migrations (version, name) VALUES (:version::integer, :name::text);

-- name: dead_rows
SELECT relname::text, n_dead_tup::bigint, n_live_tup::bigint FROM pg_stat_user_tables
WHERE relid IN ('tasks'::regclass, 'events'::regclass, 'specs'::regclass, 'outbox'::regclass,
                'head'::regclass, 'log'::regclass, 'unnumbered'::regclass)
ORDER BY 1;

-- What keeps old versions of rows alive: the oldest transaction of a client, and of those that were
-- prepared and forgotten.

-- name: oldest_transaction
SELECT floor(extract(epoch FROM clock_timestamp() - began))::bigint, who
FROM (
    SELECT xact_start AS began,
           coalesce(nullif(application_name, ''), 'a client') || ', ' || coalesce(state, '')
           || ', pid ' || pid AS who
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
      AND backend_type = 'client backend'
    UNION ALL
    SELECT prepared, 'prepared as ' || gid FROM pg_prepared_xacts
    WHERE database = current_database()
) AS open
ORDER BY began LIMIT 1;

-- An index that was built badly is in the way only.

-- name: indexes
SELECT c.relname::text, i.indisvalid AND i.indisready AND i.indislive
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'tasks'::regclass);

-- name: commit_asynchronously
SELECT set_config('synchronous_commit', 'off', true);

-- name: postpone_effects
UPDATE outbox SET due_at = :until::bigint, tries = tries + 1 WHERE sequence IN (
    SELECT sequence FROM outbox WHERE sequence = ANY (:sequences::bigint[])
    ORDER BY sequence FOR UPDATE);

-- name: keys
SELECT id, key FROM specs WHERE id = ANY (:ids::text[]) ORDER BY id;

-- name: tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
       s.submitted_at, s.body
FROM unnest(:keys::bigint[]) WITH ORDINALITY AS wanted (key, nth)
JOIN tasks t ON t.key = wanted.key JOIN specs s ON s.key = t.key
ORDER BY wanted.nth;

-- name: tasks_named
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
       s.submitted_at, s.body
FROM specs s JOIN tasks t ON t.key = s.key WHERE s.id = ANY (:ids::text[]) ORDER BY t.key;

-- name: list_newest
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
       s.submitted_at, s.body
FROM tasks t JOIN specs s ON s.key = t.key
WHERE (:key::bigint = 0 OR t.key < :key::bigint)
  AND (:role::bigint = 0 OR t.role = :role::bigint)
  AND (cardinality(:states::bigint[]) = 0 OR t.state = ANY (:states::bigint[]))
  AND (:updated_before::bigint = 0 OR t.updated_at < :updated_before::bigint)
  AND (NOT :refers::boolean OR s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%')
  -- jsonb cannot hold the character that \u0000 stands for, and a filter must not trip over it.
  AND (:sender::text = '' OR :sender::text =
       coalesce(replace(s.body, '\u0000', '\ufffd')::jsonb ->> 'sender', 'coordinator'))
  AND (:type::text = '' OR :type::text =
       coalesce(replace(s.body, '\u0000', '\ufffd')::jsonb ->> 'type', 'task'))
  AND (cardinality(:label_names::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM unnest(:label_names::text[], :label_values::text[]) AS wanted (name, value)
      WHERE replace(s.body, '\u0000', '\ufffd')::jsonb -> 'labels' ->> wanted.name
            IS DISTINCT FROM wanted.value))
ORDER BY t.key DESC LIMIT :count::bigint;

-- name: list_oldest
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
       s.submitted_at, s.body
FROM tasks t JOIN specs s ON s.key = t.key
WHERE t.key > :key::bigint
  AND (:role::bigint = 0 OR t.role = :role::bigint)
  AND (cardinality(:states::bigint[]) = 0 OR t.state = ANY (:states::bigint[]))
  AND (:updated_before::bigint = 0 OR t.updated_at < :updated_before::bigint)
  AND (NOT :refers::boolean OR s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%')
  -- jsonb cannot hold the character that \u0000 stands for, and a filter must not trip over it.
  AND (:sender::text = '' OR :sender::text =
       coalesce(replace(s.body, '\u0000', '\ufffd')::jsonb ->> 'sender', 'coordinator'))
  AND (:type::text = '' OR :type::text =
       coalesce(replace(s.body, '\u0000', '\ufffd')::jsonb ->> 'type', 'task'))
  AND (cardinality(:label_names::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM unnest(:label_names::text[], :label_values::text[]) AS wanted (name, value)
      WHERE replace(s.body, '\u0000', '\ufffd')::jsonb -> 'labels' ->> wanted.name
            IS DISTINCT FROM wanted.value))
ORDER BY t.key LIMIT :count::bigint;

-- The same where what is not over is asked for, by those few: the specs of all tasks are not read.

-- name: list_oldest_live
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
       s.submitted_at, s.body
FROM (SELECT * FROM tasks WHERE state < 5 AND key > :key::bigint OFFSET 0) AS t
CROSS JOIN LATERAL (SELECT * FROM specs WHERE specs.key = t.key OFFSET 0) AS s
WHERE true
  AND (:role::bigint = 0 OR t.role = :role::bigint)
  AND (cardinality(:states::bigint[]) = 0 OR t.state = ANY (:states::bigint[]))
  AND (:updated_before::bigint = 0 OR t.updated_at < :updated_before::bigint)
  AND (NOT :refers::boolean OR s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%')
  -- jsonb cannot hold the character that \u0000 stands for, and a filter must not trip over it.
  AND (:sender::text = '' OR :sender::text =
       coalesce(replace(s.body, '\u0000', '\ufffd')::jsonb ->> 'sender', 'coordinator'))
  AND (:type::text = '' OR :type::text =
       coalesce(replace(s.body, '\u0000', '\ufffd')::jsonb ->> 'type', 'task'))
  AND (cardinality(:label_names::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM unnest(:label_names::text[], :label_values::text[]) AS wanted (name, value)
      WHERE replace(s.body, '\u0000', '\ufffd')::jsonb -> 'labels' ->> wanted.name
            IS DISTINCT FROM wanted.value))
ORDER BY t.key LIMIT :count::bigint;

-- One key after the other, each by LIMIT 1: left to itself, and without fresh statistics, PostgreSQL
-- reads and sorts all that the index holds.

-- name: list_approval
WITH RECURSIVE walk (key, nth) AS (
    SELECT (SELECT t.key FROM tasks t WHERE t.state = 0 AND t.flags >= 8 AND t.flags & 8 <> 0 AND t.key > :key::bigint
            ORDER BY t.key LIMIT 1), 1
    UNION ALL
    SELECT (SELECT t.key FROM tasks t WHERE t.state = 0 AND t.flags >= 8 AND t.flags & 8 <> 0 AND t.key > w.key
            ORDER BY t.key LIMIT 1), w.nth + 1
    FROM walk w WHERE w.key IS NOT NULL AND w.nth < :count::bigint
), picked AS MATERIALIZED (
    SELECT t.* FROM walk w
    CROSS JOIN LATERAL (SELECT * FROM tasks WHERE key = w.key LIMIT 1) AS t
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.key;

-- name: list_mentioned
WITH RECURSIVE walk (key, nth) AS (
    SELECT (SELECT t.key FROM tasks t WHERE t.flags >= 16 AND t.key > :key::bigint
            ORDER BY t.key LIMIT 1), 1
    UNION ALL
    SELECT (SELECT t.key FROM tasks t WHERE t.flags >= 16 AND t.key > w.key
            ORDER BY t.key LIMIT 1), w.nth + 1
    FROM walk w WHERE w.key IS NOT NULL AND w.nth < :count::bigint
), picked AS MATERIALIZED (
    SELECT t.* FROM walk w
    CROSS JOIN LATERAL (SELECT * FROM tasks WHERE key = w.key LIMIT 1) AS t
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.key;

-- name: list_dead
WITH RECURSIVE walk (key, nth) AS (
    SELECT (SELECT t.key FROM tasks t WHERE t.state IN (6, 8)
              AND t.key < coalesce(nullif(:key::bigint, 0), 9223372036854775807)
            ORDER BY t.key DESC LIMIT 1), 1
    UNION ALL
    SELECT (SELECT t.key FROM tasks t WHERE t.state IN (6, 8) AND t.key < w.key
            ORDER BY t.key DESC LIMIT 1), w.nth + 1
    FROM walk w WHERE w.key IS NOT NULL AND w.nth < :count::bigint
), picked AS MATERIALIZED (
    SELECT t.* FROM walk w
    CROSS JOIN LATERAL (SELECT * FROM tasks WHERE key = w.key LIMIT 1) AS t
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.key DESC;

-- What is not over has an order of urgency within its role and state, and an index by it.

-- name: list_urgent
WITH picked AS MATERIALIZED (
    SELECT * FROM tasks
    WHERE role = :role::integer AND state = :state::smallint AND state < 5
      AND (:updated_before::bigint = 0 OR updated_at < :updated_before::bigint)
      AND (priority, key) > (:priority::smallint, :key::bigint)
    ORDER BY priority, key LIMIT :count::bigint
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.priority, p.key;

-- name: history
SELECT coalesce(l.position, 0), s.id, e.key, e.version, e.at, e.kind, e.trigger, e.state, e.epoch,
       e.data, e.digest
FROM events e JOIN specs s ON s.key = e.key
LEFT JOIN log l ON l.key = e.key AND l.version = e.version
WHERE e.key = ANY (:keys::bigint[]) ORDER BY e.key, e.version;

-- name: events_after
WITH places AS MATERIALIZED (
    SELECT position, key, version FROM log WHERE position > :position::bigint
    ORDER BY position LIMIT :count::bigint
)
SELECT l.position, s.id, e.key, e.version, e.at, e.kind, e.trigger, e.state, e.epoch, e.data,
       e.digest
FROM places l
CROSS JOIN LATERAL (
    SELECT * FROM events WHERE key = l.key AND version = l.version LIMIT 1) AS e
CROSS JOIN LATERAL (SELECT id FROM specs WHERE key = l.key LIMIT 1) AS s
ORDER BY l.position;

-- Numbering the log. An event is stored without a place; whoever follows gives places to what has
-- committed. `head` is locked first, so that numberers take turns, and the statement after it sees
-- all that the one before has left. A transaction draws its sequences after those it could see have
-- committed, so the order of sequences among what is visible respects the order of commits.

-- name: unnumbered
SELECT position, (SELECT min(sequence) FROM unnumbered) IS NOT NULL FROM head;

-- name: lock_head
SELECT position FROM head FOR UPDATE;

-- name: number_events
WITH taken AS (
    DELETE FROM unnumbered WHERE sequence IN (
        SELECT sequence FROM unnumbered ORDER BY sequence LIMIT :count::bigint)
    RETURNING sequence, key, version
), placed AS (
    INSERT INTO log (position, key, version)
    SELECT (SELECT position FROM head) + row_number() OVER (ORDER BY sequence), key, version
    FROM taken
)
UPDATE head SET position = position + (SELECT count(*) FROM taken)
RETURNING position, (SELECT count(*) FROM taken);

-- name: orphan_rows
SELECT s.key FROM specs s WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.key = s.key)
UNION
SELECT t.key FROM tasks t WHERE NOT EXISTS (SELECT 1 FROM specs s WHERE s.key = t.key)
UNION
SELECT e.key FROM events e WHERE NOT EXISTS (SELECT 1 FROM specs s WHERE s.key = e.key)
UNION
SELECT e.key FROM events e
WHERE NOT EXISTS (SELECT 1 FROM log l WHERE l.key = e.key AND l.version = e.version)
  AND NOT EXISTS (SELECT 1 FROM unnumbered u WHERE u.key = e.key AND u.version = e.version)
UNION
SELECT l.key FROM log l
WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.key = l.key AND e.version = l.version)
UNION
SELECT l.key FROM log l CROSS JOIN head h WHERE l.position < 1 OR l.position > h.position
UNION
SELECT u.key FROM unnumbered u
WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.key = u.key AND e.version = u.version)
   OR EXISTS (SELECT 1 FROM log l WHERE l.key = u.key AND l.version = u.version)
   OR EXISTS (SELECT 1 FROM unnumbered o
              WHERE o.key = u.key AND o.version = u.version AND o.sequence <> u.sequence)
LIMIT :count;

-- name: ledger_counts
SELECT (SELECT count(*) FROM specs),
       coalesce(pg_sequence_last_value('task_keys'::regclass), 0),
       (SELECT count(*) FROM log),
       position,
       (SELECT count(*) FROM outbox WHERE lane = 'submissions')
FROM head;

-- name: edges_of
SELECT parent, child FROM edges WHERE parent = ANY (:keys::bigint[])
UNION
SELECT parent, child FROM edges WHERE child = ANY (:keys::bigint[])
ORDER BY child, parent;

-- name: artifacts_of
SELECT key, epoch, name, size, sha256, media_type, at FROM artifacts
WHERE key = ANY (:keys::bigint[]) ORDER BY key, epoch, name;

-- name: due_effects
SELECT o.sequence, o.key, o.key || '.' || o.version || '.' || o.number, o.lane, o.payload, o.tries
FROM outbox o
WHERE o.lane = :lane::text AND o.sequence > :after::bigint AND o.due_at <=
    coalesce(:now::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ORDER BY o.sequence LIMIT :count::bigint;

-- The same as `prunable`, of these very tasks: asked under lock, so it reads no others.

-- name: prunable_of
SELECT t.key FROM tasks t
WHERE t.key = ANY (:keys::bigint[])
  AND t.key > :after_key::bigint AND t.state >= 5 AND t.updated_at < :before::bigint
  AND t.holder = ''
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.key = t.key)
  AND NOT EXISTS (SELECT 1 FROM edges e JOIN tasks c ON c.key = e.child
                  WHERE e.parent = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM tree_members m JOIN tasks c ON c.key = m.key
                  WHERE m.root = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
ORDER BY t.key LIMIT :count::bigint;

-- name: trees_of
SELECT m.key, r.root, r.name, r.budget, r.extra, r.spent, r.used_up
FROM tree_members m JOIN trees r ON r.root = m.root
WHERE m.key = ANY (:keys::bigint[]) ORDER BY r.root, m.key;

-- name: lock_trees
SELECT m.key, r.root, r.name, r.budget, r.extra, r.spent, r.used_up
FROM tree_members m JOIN trees r ON r.root = m.root
WHERE m.key = ANY (:keys::bigint[]) ORDER BY r.root, m.key FOR UPDATE OF r;

-- name: lock_circuits
SELECT pg_advisory_xact_lock(7263718234110);

-- name: lock_tokens
SELECT pg_advisory_xact_lock(7263718234111);

-- name: insert_leader_leases
INSERT INTO terms (name, holder, term, expires_at)
SELECT name, '', 0, 0 FROM unnest(:names::text[]) AS u (name) ORDER BY name
ON CONFLICT (name) DO NOTHING;

-- name: lock_leader_leases
SELECT name, holder, term, expires_at, body FROM terms WHERE name = ANY (:names::text[])
ORDER BY name FOR UPDATE;

-- name: lock
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest
FROM tasks t WHERE t.key = ANY (:keys::bigint[]) ORDER BY t.key FOR UPDATE;

-- name: lock_tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
       s.submitted_at, s.body
FROM tasks t JOIN specs s ON s.key = t.key
WHERE t.key = ANY (:keys::bigint[]) ORDER BY t.key FOR UPDATE OF t;

-- LATERAL with LIMIT 1: by its index, whatever the planner thinks of the number of rows.

-- name: pick
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
           t.priority
    FROM tasks t
    WHERE t.role = :role::integer AND t.state = 1 AND t.state < 5
      AND (t.flags & 6 = 0 OR NOT EXISTS (
          SELECT 1 FROM wants w LEFT JOIN resources k ON k.name = w.resource
          WHERE w.key = t.key AND (
              (SELECT count(*) FROM holds h WHERE h.resource = w.resource)
                  >= coalesce(k.max_held, 1)
              OR (k.next_at > coalesce(:now::bigint,
                      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
                  AND k.level_at <= 60000 + coalesce(:now::bigint,
                      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))))
        AND NOT EXISTS (
          SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
          WHERE m.key = t.key AND r.used_up = 1))
      AND (NOT :unless_limited::boolean OR EXISTS (
          SELECT 1 FROM roles r WHERE r.id = :role::integer
            AND r.paused = 0 AND r.max_running = 0 AND r.max_review = 0 AND r.daily = ''
            AND r.circuit = '' AND r.rate = ''))
      AND (:provider::text = '' OR NOT EXISTS (
          SELECT 1 FROM circuits c WHERE c.provider = :provider::text AND (c.failures > 0
            OR c.open_until > coalesce(:now::bigint,
                floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))))
    ORDER BY t.priority, t.key LIMIT :count::bigint FOR UPDATE OF t SKIP LOCKED
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.priority, p.key;

-- name: pick_named
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
           s.submitted_at, s.body, w.nth
    FROM unnest(:ids::text[]) WITH ORDINALITY AS w (id, nth)
    CROSS JOIN LATERAL (SELECT key, submitted_at, body FROM specs WHERE id = w.id LIMIT 1) AS s
    JOIN tasks t ON t.key = s.key
    WHERE t.role = :role::integer AND t.state = 1
      AND (t.flags & 6 = 0 OR NOT EXISTS (
          SELECT 1 FROM wants w LEFT JOIN resources k ON k.name = w.resource
          WHERE w.key = t.key AND (
              (SELECT count(*) FROM holds h WHERE h.resource = w.resource)
                  >= coalesce(k.max_held, 1)
              OR (k.next_at > coalesce(:now::bigint,
                      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
                  AND k.level_at <= 60000 + coalesce(:now::bigint,
                      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))))
        AND NOT EXISTS (
          SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
          WHERE m.key = t.key AND r.used_up = 1))
    ORDER BY t.key FOR UPDATE OF t SKIP LOCKED
)
SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, digest, submitted_at, body
FROM picked ORDER BY nth;

-- name: pick_after
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest,
           t.priority
    FROM tasks t
    WHERE t.role = :role::integer AND t.state = 1 AND t.state < 5
      AND (t.priority, t.key) > (:priority::smallint, :key::bigint)
      AND (t.flags & 6 = 0 OR NOT EXISTS (
          SELECT 1 FROM wants w LEFT JOIN resources k ON k.name = w.resource
          WHERE w.key = t.key AND (
              (SELECT count(*) FROM holds h WHERE h.resource = w.resource)
                  >= coalesce(k.max_held, 1)
              OR (k.next_at > coalesce(:now::bigint,
                      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
                  AND k.level_at <= 60000 + coalesce(:now::bigint,
                      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))))
        AND NOT EXISTS (
          SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
          WHERE m.key = t.key AND r.used_up = 1))
    ORDER BY t.priority, t.key LIMIT :count::bigint FOR UPDATE OF t SKIP LOCKED
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.priority, p.key;

-- name: due
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags, t.digest
    FROM tasks t WHERE t.wake_at > 0 AND t.wake_at <= :now::bigint
    ORDER BY t.wake_at, t.key LIMIT :count::bigint FOR UPDATE SKIP LOCKED
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags, p.digest,
       s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.wake_at, p.key;

-- name: hold_resource
INSERT INTO holds (resource, place, key)
SELECT resource, place, :key::bigint
FROM unnest(:resources::text[], :places::bigint[]) AS u (resource, place) ORDER BY resource
ON CONFLICT (resource, place) DO NOTHING RETURNING resource;

-- name: release_resources
DELETE FROM holds WHERE key = ANY (:keys::bigint[]);

-- Arrays are taken apart in the select list, row by row and in their order. In the FROM clause the
-- server would first copy each of them into a store of its own: with twenty arrays that was a third
-- of the time of a small statement.

-- What a transaction writes. Where it was prepared for other lanes than are open now, or a task is
-- no longer in the version it was decided on, `run_again` raises and nothing is written.

-- name: insert_tasks
WITH new AS MATERIALIZED (
    SELECT nextval('task_keys') AS key, u.* FROM (
        SELECT unnest(:ids::text[]) AS id, unnest(:roles::bigint[]) AS role,
               unnest(:priorities::bigint[]) AS priority, unnest(:states::bigint[]) AS state,
               unnest(:wake_ats::bigint[]) AS wake_at, unnest(:ats::bigint[]) AS at,
               unnest(:memos::text[]) AS memo, unnest(:flags::bigint[]) AS flags,
               unnest(:bodies::text[]) AS body, unnest(:kinds::text[]) AS kind,
               unnest(:datas::text[]) AS data, unnest(:digests::text[]) AS digest
    ) AS u
), s AS (
    INSERT INTO specs (key, id, submitted_at, body) SELECT key, id, at, body FROM new
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, digest)
    SELECT key, role, priority, state, 1, 0, wake_at, at, '', memo, flags, digest FROM new
), e AS (
    INSERT INTO events (key, version, at, kind, trigger, state, epoch, data, digest)
    SELECT key, 1, at, kind, 'Submit', state, 0, data, digest FROM new
), n AS (
    INSERT INTO unnumbered (key, version) SELECT key, 1 FROM new
), o AS (
    INSERT INTO outbox (key, version, number, lane, payload)
    SELECT new.key, 1, u.number, u.lane, u.payload
    FROM (SELECT unnest(:effect_ids::text[]) AS id, unnest(:effect_numbers::bigint[]) AS number,
                 unnest(:effect_lanes::text[]) AS lane, unnest(:effect_payloads::text[]) AS payload,
                 generate_subscripts(:effect_ids::text[], 1) AS nth) AS u
    JOIN new USING (id) ORDER BY u.nth
)
SELECT CASE WHEN lanes = :known_lanes::text THEN 0 ELSE run_again() END FROM head;

-- name: save
WITH u AS MATERIALIZED (
    SELECT unnest(:hot_keys::bigint[]) AS key, unnest(:hot_states::bigint[]) AS state,
           unnest(:hot_versions::bigint[]) AS version, unnest(:hot_epochs::bigint[]) AS epoch,
           unnest(:hot_wakes::bigint[]) AS wake_at, unnest(:hot_ats::bigint[]) AS at,
           unnest(:hot_holders::text[]) AS holder, unnest(:hot_memos::text[]) AS memo,
           unnest(:hot_flags::bigint[]) AS flags, unnest(:hot_digests::text[]) AS digest,
           unnest(:old_versions::bigint[]) AS old_version,
           unnest(:old_wakes::bigint[]) AS old_wake, unnest(:old_flags::bigint[]) AS old_flags
), changed AS (
    UPDATE tasks t SET state = u.state, version = u.version, epoch = u.epoch, wake_at = u.wake_at,
        updated_at = u.at, holder = u.holder, memo = u.memo, flags = u.flags,
        digest = u.digest
    FROM u WHERE t.key = u.key AND t.version = u.old_version
      AND (u.old_wake < 0 OR (t.wake_at = u.old_wake AND t.flags = u.old_flags))
    RETURNING 1
), e AS (
    INSERT INTO events (key, version, at, kind, trigger, state, epoch, data, digest)
    SELECT unnest(:keys::bigint[]), unnest(:versions::bigint[]), unnest(:ats::bigint[]),
           unnest(:kinds::text[]), unnest(:triggers::text[]), unnest(:states::bigint[]),
           unnest(:epochs::bigint[]), unnest(:datas::text[]), unnest(:digests::text[])
), n AS (
    INSERT INTO unnumbered (key, version)
    SELECT unnest(:keys::bigint[]), unnest(:versions::bigint[])
)
SELECT CASE WHEN lanes = :known_lanes::text AND (SELECT count(*) FROM changed) = :count::bigint
            THEN 0 ELSE run_again() END
FROM head;

-- The rows are locked by `save`, which comes before.

-- name: set_addresses
UPDATE tasks t SET role = u.role, priority = u.priority
FROM unnest(:keys::bigint[], :roles::bigint[], :priorities::bigint[]) AS u (key, role, priority)
WHERE t.key = u.key;

-- name: insert_effects
INSERT INTO outbox (key, version, number, lane, payload)
SELECT unnest(:keys::bigint[]), unnest(:versions::bigint[]), unnest(:numbers::bigint[]),
       unnest(:lanes::text[]), unnest(:payloads::text[]);

-- name: insert_edges
WITH u AS (
    SELECT p.key AS parent, c.key AS child
    FROM unnest(:parents::text[], :children::text[]) AS u (parent, child)
    JOIN specs p ON p.id = u.parent JOIN specs c ON c.id = u.child
), marked AS (
    UPDATE tasks SET flags = flags | 1 WHERE flags & 1 = 0 AND key IN (SELECT parent FROM u)
)
INSERT INTO edges (parent, child) SELECT parent, child FROM u ON CONFLICT DO NOTHING;

-- name: insert_wants
INSERT INTO wants (key, resource)
SELECT s.key, u.resource FROM unnest(:ids::text[], :resources::text[]) AS u (id, resource)
JOIN specs s ON s.id = u.id ON CONFLICT DO NOTHING;

-- name: insert_trees
INSERT INTO trees (root, name, budget, extra, spent, used_up)
SELECT s.key, u.name, u.budget, u.extra, u.spent, u.used_up
FROM unnest(:names::text[], :budgets::text[], :extras::text[], :spents::text[],
            :used_ups::bigint[]) AS u (name, budget, extra, spent, used_up)
JOIN specs s ON s.id = u.name;

-- name: set_trees
UPDATE trees t SET budget = u.budget, extra = u.extra, spent = u.spent, used_up = u.used_up
FROM unnest(:roots::bigint[], :budgets::text[], :extras::text[], :spents::text[],
            :used_ups::bigint[]) AS u (root, budget, extra, spent, used_up)
WHERE t.root = u.root;

-- What `agentq repair` writes: what is there is deleted first, by a statement of its own.

-- name: clear_beside
WITH w AS (DELETE FROM wants WHERE key = :key::bigint),
     h AS (DELETE FROM holds WHERE key = :key::bigint),
     m AS (DELETE FROM tree_members WHERE key = :key::bigint),
     a AS (DELETE FROM artifacts WHERE key = :key::bigint)
DELETE FROM edges WHERE child = :key::bigint;

-- name: clear_dependents
DELETE FROM edges WHERE parent = :key::bigint;

-- name: rebuild_task
UPDATE tasks SET state = :state::bigint, version = :version::bigint, epoch = :epoch::bigint,
    wake_at = :wake_at::bigint, updated_at = :updated_at::bigint, holder = :holder::text,
    memo = :memo::text, flags = :flags::bigint, digest = :digest::text, role = :role::bigint,
    priority = :priority::bigint
WHERE key = :key::bigint;

-- name: rebuild_beside
WITH e AS (INSERT INTO edges (parent, child) SELECT unnest(:parents::bigint[]), :key::bigint),
     w AS (INSERT INTO wants (key, resource) SELECT :key::bigint, unnest(:wanted::text[])),
     h AS (INSERT INTO holds (resource, place, key)
           SELECT unnest(:held::text[]), unnest(:places::bigint[]), :key::bigint
           ON CONFLICT (resource, place) DO NOTHING)
INSERT INTO tree_members (key, root) SELECT :key::bigint, unnest(:roots::bigint[]);

-- name: drop_tree
DELETE FROM trees WHERE root = :root::bigint;

-- name: drop_lone_tree
DELETE FROM trees WHERE root = :root::bigint
  AND NOT EXISTS (SELECT 1 FROM tree_members WHERE root = :root::bigint);

-- name: insert_tree
INSERT INTO trees (root, name, budget, extra, spent, used_up)
VALUES (:root::bigint, :name::text, :budget::text, :extra::text, :spent::text, :used_up::bigint);

-- A root is known by its key, or is new and known by its id.

-- name: join_trees
INSERT INTO tree_members (key, root)
SELECT s.key, CASE WHEN u.root > 0 THEN u.root ELSE r.key END
FROM unnest(:ids::text[], :roots::bigint[], :root_ids::text[]) AS u (id, root, root_id)
JOIN specs s ON s.id = u.id LEFT JOIN specs r ON u.root = 0 AND r.id = u.root_id
ON CONFLICT DO NOTHING;

-- name: dedup_records
SELECT name, task_id, digest, state, expires_at FROM dedup WHERE name = ANY (:names::text[])
ORDER BY name;

-- A dedup record is checked against what was read: whoever found none must be the one who makes it,
-- and whoever replaces an old one must still find that one.

-- name: insert_dedup
WITH made AS (
    INSERT INTO dedup (name, task_id, digest, state, expires_at)
    SELECT * FROM unnest(:names::text[], :ids::text[], :digests::text[], :states::bigint[],
                         :expiries::bigint[]) AS u (name, id, digest, state, expires_at)
    ORDER BY name ON CONFLICT (name) DO NOTHING RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM made) = :count::bigint THEN 0 ELSE run_again() END;

-- name: replace_dedup
WITH made AS (
    UPDATE dedup d SET task_id = u.id, digest = u.digest, state = u.state,
                       expires_at = u.expires_at
    FROM unnest(:names::text[], :ids::text[], :digests::text[], :states::bigint[],
                :expiries::bigint[], :old_ids::text[], :old_expiries::bigint[])
         AS u (name, id, digest, state, expires_at, old_id, old_expires_at)
    WHERE d.name = u.name AND d.task_id = u.old_id AND d.expires_at = u.old_expires_at
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM made) = :count::bigint THEN 0 ELSE run_again() END;

-- name: save_dedup
INSERT INTO dedup (name, task_id, digest, state, expires_at)
SELECT * FROM unnest(:names::text[], :ids::text[], :digests::text[], :states::bigint[],
                         :expiries::bigint[]) AS u (name, id, digest, state, expires_at)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET task_id = excluded.task_id, digest = excluded.digest,
    state = excluded.state, expires_at = excluded.expires_at;

-- name: set_leader_leases
UPDATE terms t SET holder = u.holder, term = u.term, expires_at = u.expires_at, body = u.body
FROM unnest(:names::text[], :holders::text[], :numbers::bigint[], :expiries::bigint[],
            :bodies::text[]) AS u (name, holder, term, expires_at, body)
WHERE t.name = u.name;

-- name: forget_workers
DELETE FROM terms WHERE name IN (
    SELECT name FROM terms
    WHERE name LIKE 'worker:%' AND expires_at < :workers_before::bigint FOR UPDATE SKIP LOCKED);

-- Whoever changes the open lanes waits for those who are writing events, and has others wait until
-- the new lanes are there: what they write next sees them. Nobody else locks `head` to commit.

-- name: lock_events
LOCK TABLE events IN SHARE MODE;

-- name: set_lanes
WITH made AS (
    UPDATE head SET lanes = :lanes::text WHERE lanes = :known_lanes::text RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM made) = 1 THEN 0 ELSE run_again() END;

-- name: was_saved
SELECT 1 FROM events
WHERE key = :key::bigint AND version = :version::bigint AND at = :at::bigint
  AND kind = :kind::text AND trigger = :trigger::text AND data = :data::text;

-- One that a transaction is giving to a new task right now is passed over: that one may stay open.

-- name: forget_dedup
WITH gone AS (
    DELETE FROM dedup WHERE name IN (
        SELECT name FROM dedup WHERE expires_at <= :now::bigint FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: lock_hook_delivery
SELECT way, hook, delivery_id, received_at, state, attempts, error, tasks, headers, '', number
FROM hook_deliveries WHERE number = :number FOR UPDATE;

-- What still waits stays: its id may be known no longer, and come again.

-- name: save_hook_deliveries
INSERT INTO hook_deliveries (way, hook, delivery_id, received_at, state, attempts, error, tasks,
                             headers, body)
SELECT * FROM unnest(:ways::text[], :hooks::text[], :ids::text[], :ats::bigint[],
                     :states::bigint[], :attempts::bigint[], :errors::text[], :tasks::text[],
                     :headers::text[], :bodies::text[])
ON CONFLICT (way, hook, delivery_id) DO UPDATE SET received_at = excluded.received_at,
    state = excluded.state, attempts = excluded.attempts, error = excluded.error,
    tasks = excluded.tasks, headers = excluded.headers, body = excluded.body
WHERE hook_deliveries.way = 'out' OR hook_deliveries.state <> 0;

-- name: save_webhook_targets
INSERT INTO webhook_targets (name, position, failures, due_at, disabled_at, sent, last_at, error)
SELECT * FROM unnest(:names::text[], :positions::bigint[], :failures::bigint[], :dues::bigint[],
                     :disabled::bigint[], :sent::bigint[], :lasts::bigint[], :errors::text[])
ON CONFLICT (name) DO UPDATE SET position = excluded.position, failures = excluded.failures,
    due_at = excluded.due_at, disabled_at = excluded.disabled_at, sent = excluded.sent,
    last_at = excluded.last_at, error = excluded.error;

-- name: save_samples
INSERT INTO samples (span_ms, at, role, body)
SELECT * FROM unnest(:spans::bigint[], :ats::bigint[], :roles::text[], :bodies::text[])
ON CONFLICT (span_ms, at, role) DO UPDATE SET body = excluded.body;

-- name: forget_labels
DELETE FROM spending WHERE (kind = 'label' AND day < :before_day::bigint)
   OR (kind = 'submits' AND day < :before_day::bigint * 144);

-- name: delete
WITH outcomes AS (
    UPDATE dedup d SET state = t.state FROM tasks t JOIN specs s ON s.key = t.key
    WHERE t.key = ANY (:keys::bigint[]) AND d.task_id = s.id
), gone_events AS (DELETE FROM events WHERE key = ANY (:keys::bigint[])
), gone_places AS (DELETE FROM log WHERE key = ANY (:keys::bigint[])
), gone_unnumbered AS (DELETE FROM unnumbered WHERE key = ANY (:keys::bigint[])
), gone_artifacts AS (DELETE FROM artifacts WHERE key = ANY (:keys::bigint[])
), gone_effects AS (DELETE FROM outbox WHERE key = ANY (:keys::bigint[])
), gone_holds AS (DELETE FROM holds WHERE key = ANY (:keys::bigint[])
), gone_wants AS (DELETE FROM wants WHERE key = ANY (:keys::bigint[])
), gone_members AS (DELETE FROM tree_members WHERE key = ANY (:keys::bigint[])
), gone_edges AS (
    DELETE FROM edges WHERE child = ANY (:keys::bigint[]) OR parent = ANY (:keys::bigint[])
), gone_tasks AS (DELETE FROM tasks WHERE key = ANY (:keys::bigint[]))
DELETE FROM specs WHERE key = ANY (:keys::bigint[]);

-- name: delete_trees
DELETE FROM trees r WHERE NOT EXISTS (SELECT 1 FROM tree_members m WHERE m.root = r.root);

-- Amounts travel as text: the wire knows whole numbers and texts.

-- name: add_spending
INSERT INTO spending (kind, name, day, usd, tokens, turns, seconds, estimated)
SELECT kind, name, day, usd::double precision, tokens::double precision, turns::double precision,
       seconds::double precision, estimated::double precision
FROM unnest(:kinds::text[], :names::text[], :days::bigint[], :usds::text[], :tokens::text[],
            :turns::text[], :seconds::text[], :estimates::text[])
     AS u (kind, name, day, usd, tokens, turns, seconds, estimated)
ORDER BY kind, name, day
ON CONFLICT (kind, name, day) DO UPDATE SET usd = spending.usd + excluded.usd,
    tokens = spending.tokens + excluded.tokens, turns = spending.turns + excluded.turns,
    seconds = spending.seconds + excluded.seconds,
    estimated = spending.estimated + excluded.estimated;

-- name: server_facts
SELECT current_setting('server_version'), current_setting('synchronous_commit'),
       current_setting('fsync'), current_setting('full_page_writes'),
       pg_database_size(current_database())::text,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database())::text,
       current_setting('max_connections'),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       current_setting('autovacuum'), current_setting('statement_timeout'),
       current_setting('lock_timeout'),
       CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END,
       current_setting('transaction_read_only'),
       (SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only'),
       -- Of sessions of other users a plain user learns that they are there, and no more.
       (SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND usesysid IS NOT NULL AND backend_type IS NULL),
       -- What this user may not do, of all that there is to do with tables and sequences here.
       ARRAY(SELECT wish.verb || ' ON ' || c.relname
             FROM pg_class c
             CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE'), ('USAGE'))
                  AS wish (verb)
             WHERE pg_table_is_visible(c.oid)
               AND CASE WHEN c.relkind IN ('r', 'p') AND wish.verb <> 'USAGE'
                            THEN NOT has_table_privilege(c.oid, wish.verb)
                        WHEN c.relkind = 'S' AND wish.verb = 'USAGE'
                            THEN NOT has_sequence_privilege(c.oid, 'USAGE, UPDATE')
                        ELSE false END
             ORDER BY c.relname, wish.verb);

-- name: newest_migration
SELECT coalesce(max(version), 0)::bigint FROM schema_migrations;

-- name: schedules_named
SELECT name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at, paused,
       problem, fired, skipped, open_tasks, note
FROM schedules WHERE name = ANY (:names::text[]) ORDER BY name;

-- name: lock_schedules
SELECT name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at, paused,
       problem, fired, skipped, open_tasks, note
FROM schedules WHERE name = ANY (:names::text[]) ORDER BY name FOR UPDATE;

-- name: set_schedules
INSERT INTO schedules (name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at,
                       paused, problem, fired, skipped, open_tasks, note)
SELECT * FROM unnest(:names::text[], :rules::text[], :digests::text[], :sinces::bigint[],
    :nexts::bigint[], :wakes::bigint[], :lasts::bigint[], :askeds::bigint[], :rans::bigint[],
    :pauseds::bigint[], :problems::text[], :fireds::bigint[], :skippeds::bigint[], :opens::text[], :notes::text[])
    AS u (name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at, paused,
          problem, fired, skipped, open_tasks, note)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, digest = excluded.digest,
    since_at = excluded.since_at, next_at = excluded.next_at, wake_at = excluded.wake_at,
    last_at = excluded.last_at, asked_at = excluded.asked_at, ran_at = excluded.ran_at,
    paused = excluded.paused, problem = excluded.problem, fired = excluded.fired, skipped = excluded.skipped,
    open_tasks = excluded.open_tasks, note = excluded.note;

-- name: drop_schedules
DELETE FROM schedules WHERE name = ANY (:names::text[]);

-- Two who found the same last event cannot both write the next: the second is run again.

-- name: add_system_events
WITH made AS (
    INSERT INTO system_events (number, at, kind, subject, position, data, digest)
    SELECT * FROM unnest(:numbers::bigint[], :ats::bigint[], :kinds::text[], :subjects::text[],
                         :positions::bigint[], :datas::text[], :digests::text[])
    ON CONFLICT (number) DO NOTHING RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM made) = :count::bigint THEN 0 ELSE run_again() END;

-- name: log_length
SELECT coalesce((SELECT position FROM head), -1), (SELECT count(*) FROM log);
