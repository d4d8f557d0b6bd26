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

-- name: last_position
SELECT position FROM head;

-- name: lanes
SELECT lanes FROM head;

-- name: set_lanes
UPDATE head SET lanes = :lanes::text WHERE lanes = :known_lanes::text RETURNING lanes;

-- name: keys
SELECT id, key FROM specs WHERE id = ANY (:ids::text[]) ORDER BY id;

-- name: tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       s.submitted_at, s.body
FROM unnest(:keys::bigint[]) WITH ORDINALITY AS wanted (key, nth)
JOIN tasks t ON t.key = wanted.key JOIN specs s ON s.key = t.key
ORDER BY wanted.nth;

-- name: list_tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       s.submitted_at, s.body
FROM tasks t JOIN specs s ON s.key = t.key
WHERE (:before_key::bigint = 0 OR t.key < :before_key::bigint)
  AND (:role::bigint = 0 OR t.role = :role::bigint)
  AND (cardinality(:states::bigint[]) = 0 OR t.state = ANY (:states::bigint[]))
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

-- name: holders_of
SELECT h.resource, s.id FROM holds h JOIN specs s ON s.key = h.key
WHERE h.resource = ANY (:resources::text[]) ORDER BY h.resource;

-- The whole of a submission: tasks, events with their positions, and the ring. Where the open lanes
-- are no longer those that the caller knew, no row of head is updated, positions are null, and
-- events refuse that: all of it fails.

-- name: submit_one
WITH s AS (
    INSERT INTO specs (key, id, submitted_at, body)
    VALUES (nextval('task_keys'), :id::text, :at::bigint, :body::text)
    ON CONFLICT (id) DO NOTHING RETURNING key
), h AS (
    UPDATE head SET position = position + (SELECT count(*) FROM s)
    WHERE lanes = :known_lanes::text RETURNING position
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, last_event)
    SELECT key, :role::integer, :priority::smallint, :state::smallint, 1, 0, :wake_at::bigint,
           :at::bigint, '', :memo::text, :flags::smallint, (SELECT position FROM h)
    FROM s
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT position FROM h), 0, key, 1, :at::bigint, :kind::text, 'Submit', :state::smallint,
           0, :data::text
    FROM s
)
SELECT (SELECT count(*) FROM s), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- name: submit_one_saying
WITH s AS (
    INSERT INTO specs (key, id, submitted_at, body)
    VALUES (nextval('task_keys'), :id::text, :at::bigint, :body::text)
    ON CONFLICT (id) DO NOTHING RETURNING key
), h AS (
    UPDATE head SET position = position + (SELECT count(*) FROM s)
    WHERE lanes = :known_lanes::text RETURNING position
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, last_event)
    SELECT key, :role::integer, :priority::smallint, :state::smallint, 1, 0, :wake_at::bigint,
           :at::bigint, '', :memo::text, :flags::smallint, (SELECT position FROM h)
    FROM s
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT position FROM h), 0, key, 1, :at::bigint, :kind::text, 'Submit', :state::smallint,
           0, :data::text
    FROM s
), o AS (
    INSERT INTO outbox (key, version, number, lane, payload)
    SELECT s.key, 1, u.nth - 1, u.lane, u.payload
    FROM s, unnest(:lanes::text[], :payloads::text[]) WITH ORDINALITY AS u (lane, payload, nth)
    ORDER BY u.nth
)
SELECT (SELECT count(*) FROM s), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- name: submit_many
WITH new AS MATERIALIZED (
    SELECT nextval('task_keys') AS key, u.*
    FROM unnest(:ids::text[], :roles::bigint[], :priorities::bigint[], :states::bigint[],
                :wake_ats::bigint[], :ats::bigint[], :memos::text[], :flags::bigint[],
                :bodies::text[], :kinds::text[], :datas::text[]) WITH ORDINALITY
         AS u (id, role, priority, state, wake_at, at, memo, flags, body, kind, data, nth)
), s AS (
    INSERT INTO specs (key, id, submitted_at, body) SELECT key, id, at, body FROM new
), h AS (
    UPDATE head SET position = position + :count::bigint
    WHERE lanes = :known_lanes::text RETURNING position - :count::bigint AS base
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, last_event)
    SELECT key, role, priority, state, 1, 0, wake_at, at, '', memo, flags,
           (SELECT base FROM h) + nth
    FROM new
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT base FROM h) + nth, 0, key, 1, at, kind, 'Submit', state, 0, data FROM new
)
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- The same for tasks that differ in id and body only.

-- name: submit_alike
WITH new AS MATERIALIZED (
    SELECT nextval('task_keys') AS key, u.*
    FROM unnest(:ids::text[], :bodies::text[]) WITH ORDINALITY AS u (id, body, nth)
), s AS (
    INSERT INTO specs (key, id, submitted_at, body) SELECT key, id, :at::bigint, body FROM new
), h AS (
    UPDATE head SET position = position + :count::bigint
    WHERE lanes = :known_lanes::text RETURNING position - :count::bigint AS base
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, last_event)
    SELECT key, :role::integer, :priority::smallint, :state::smallint, 1, 0, :wake_at::bigint,
           :at::bigint, '', :memo::text, :flags::smallint, (SELECT base FROM h) + nth
    FROM new
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT base FROM h) + nth, 0, key, 1, :at::bigint, :kind::text, 'Submit', :state::smallint,
           0, :data::text
    FROM new
)
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- name: submit_with_effects
WITH new AS MATERIALIZED (
    SELECT nextval('task_keys') AS key, u.*
    FROM unnest(:ids::text[], :roles::bigint[], :priorities::bigint[], :states::bigint[],
                :wake_ats::bigint[], :ats::bigint[], :memos::text[], :flags::bigint[],
                :bodies::text[], :kinds::text[], :datas::text[]) WITH ORDINALITY
         AS u (id, role, priority, state, wake_at, at, memo, flags, body, kind, data, nth)
), s AS (
    INSERT INTO specs (key, id, submitted_at, body) SELECT key, id, at, body FROM new
), h AS (
    UPDATE head SET position = position + :count::bigint
    WHERE lanes = :known_lanes::text RETURNING position - :count::bigint AS base
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, last_event)
    SELECT key, role, priority, state, 1, 0, wake_at, at, '', memo, flags,
           (SELECT base FROM h) + nth
    FROM new
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT base FROM h) + nth, 0, key, 1, at, kind, 'Submit', state, 0, data FROM new
), o AS (
    INSERT INTO outbox (key, version, number, lane, payload)
    SELECT new.key, 1, u.number, u.lane, u.payload
    FROM unnest(:effect_ids::text[], :effect_numbers::bigint[], :effect_lanes::text[],
                :effect_payloads::text[]) WITH ORDINALITY AS u (id, number, lane, payload, nth)
    JOIN new USING (id) ORDER BY u.nth
)
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- Inside a longer transaction. Events are written by `save`, which takes the lock on head last.

-- name: insert
WITH new AS MATERIALIZED (
    SELECT nextval('task_keys') AS key, u.*
    FROM unnest(:ids::text[], :roles::bigint[], :priorities::bigint[], :states::bigint[],
                :wake_ats::bigint[], :ats::bigint[], :memos::text[], :flags::bigint[],
                :bodies::text[])
         AS u (id, role, priority, state, wake_at, at, memo, flags, body)
), s AS (
    INSERT INTO specs (key, id, submitted_at, body) SELECT key, id, at, body FROM new
    ORDER BY id, key
    ON CONFLICT (id) DO NOTHING RETURNING key, id
), t AS (
    INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder,
                       memo, flags, last_event)
    SELECT new.key, role, priority, state, 1, 0, wake_at, at, '', memo, flags, 0
    FROM new JOIN s ON s.key = new.key
)
SELECT id, key FROM s ORDER BY key;

-- name: lock
SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, last_event
FROM tasks WHERE key = ANY (:keys::bigint[]) ORDER BY key FOR UPDATE;

-- LATERAL with LIMIT 1: by its index, whatever the planner thinks of the number of rows.

-- name: pick
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
           t.last_event, t.priority
    FROM tasks t
    WHERE t.role = :role::integer AND t.state = 1 AND t.state < 5
      AND (t.flags & 6 = 0 OR NOT EXISTS (
          SELECT 1 FROM wants w JOIN holds h ON h.resource = w.resource WHERE w.key = t.key)
        AND NOT EXISTS (
          SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
          WHERE m.key = t.key AND r.used_up = 1))
      AND (NOT :freely::boolean OR EXISTS (
          SELECT 1 FROM roles r WHERE r.id = :role::integer
            AND r.paused = 0 AND r.max_running = 0 AND r.max_review = 0 AND r.daily = ''))
      AND (:provider::text = '' OR NOT EXISTS (
          SELECT 1 FROM circuits c WHERE c.provider = :provider::text AND c.open_until >
            coalesce(:now::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)))
    ORDER BY t.priority, t.key LIMIT :count::bigint FOR UPDATE OF t SKIP LOCKED
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags,
       p.last_event, s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.priority, p.key;

-- name: pick_named
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
           t.last_event, s.submitted_at, s.body, w.nth
    FROM unnest(:ids::text[]) WITH ORDINALITY AS w (id, nth)
    CROSS JOIN LATERAL (SELECT key, submitted_at, body FROM specs WHERE id = w.id LIMIT 1) AS s
    JOIN tasks t ON t.key = s.key
    WHERE t.role = :role::integer AND t.state = 1
      AND (t.flags & 6 = 0 OR NOT EXISTS (
          SELECT 1 FROM wants w JOIN holds h ON h.resource = w.resource WHERE w.key = t.key)
        AND NOT EXISTS (
          SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
          WHERE m.key = t.key AND r.used_up = 1))
    ORDER BY t.key FOR UPDATE OF t SKIP LOCKED
)
SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, last_event,
       submitted_at, body
FROM picked ORDER BY nth;

-- name: pick_after
WITH picked AS MATERIALIZED (
    SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
           t.last_event, t.priority
    FROM tasks t
    WHERE t.role = :role::integer AND t.state = 1 AND t.state < 5
      AND (t.priority, t.key) > (:priority::smallint, :key::bigint)
      AND (t.flags & 6 = 0 OR NOT EXISTS (
          SELECT 1 FROM wants w JOIN holds h ON h.resource = w.resource WHERE w.key = t.key)
        AND NOT EXISTS (
          SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
          WHERE m.key = t.key AND r.used_up = 1))
    ORDER BY t.priority, t.key LIMIT :count::bigint FOR UPDATE OF t SKIP LOCKED
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags,
       p.last_event, s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.priority, p.key;

-- name: due
WITH picked AS MATERIALIZED (
    SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, last_event
    FROM tasks WHERE wake_at > 0 AND wake_at <= :now::bigint
    ORDER BY wake_at, key LIMIT :count::bigint FOR UPDATE SKIP LOCKED
)
SELECT p.key, p.state, p.version, p.epoch, p.wake_at, p.updated_at, p.holder, p.memo, p.flags,
       p.last_event, s.submitted_at, s.body
FROM picked p
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = p.key LIMIT 1) AS s
ORDER BY p.wake_at, p.key;

-- name: save
WITH h AS (
    UPDATE head SET position = position + :count::bigint
    WHERE lanes = :known_lanes::text RETURNING position - :count::bigint AS base
), changed AS (
    UPDATE tasks t SET state = u.state, version = u.version, epoch = u.epoch, wake_at = u.wake_at,
        updated_at = u.updated_at, holder = u.holder, memo = u.memo, flags = u.flags,
        last_event = (SELECT base FROM h) + u.nth
    FROM unnest(:hot_keys::bigint[], :hot_states::bigint[], :hot_versions::bigint[],
                :hot_epochs::bigint[], :hot_wakes::bigint[], :hot_ats::bigint[],
                :hot_holders::text[], :hot_memos::text[], :hot_flags::bigint[], :hot_nths::bigint[])
         AS u (key, state, version, epoch, wake_at, updated_at, holder, memo, flags, nth)
    WHERE t.key = u.key
), born AS (
    UPDATE tasks t SET last_event = (SELECT base FROM h) + u.nth
    FROM unnest(:born_keys::bigint[], :born_nths::bigint[]) AS u (key, nth) WHERE t.key = u.key
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT base FROM h) + u.nth,
           CASE WHEN u.back > 0 THEN (SELECT base FROM h) + u.back ELSE u.previous END,
           u.key, u.version, u.at, u.kind, u.trigger, u.state, u.epoch, u.data
    FROM unnest(:previous::bigint[], :backs::bigint[], :keys::bigint[], :versions::bigint[],
                :ats::bigint[], :kinds::text[], :triggers::text[], :states::bigint[],
                :epochs::bigint[], :datas::text[])
         WITH ORDINALITY
         AS u (previous, back, key, version, at, kind, trigger, state, epoch, data, nth)
)
SELECT (SELECT base FROM h),
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- The same where every task has one event, which says of it what its row says.

-- name: save_each
WITH u AS MATERIALIZED (
    SELECT * FROM unnest(:hot_keys::bigint[], :hot_states::bigint[], :hot_versions::bigint[],
                         :hot_epochs::bigint[], :hot_wakes::bigint[], :hot_ats::bigint[],
                         :hot_holders::text[], :hot_memos::text[], :hot_flags::bigint[],
                         :kinds::text[], :triggers::text[], :datas::text[], :previous::bigint[])
         WITH ORDINALITY AS u (key, state, version, epoch, wake_at, at, holder, memo, flags, kind,
                               trigger, data, previous, nth)
), h AS (
    UPDATE head SET position = position + :count::bigint
    WHERE lanes = :known_lanes::text RETURNING position - :count::bigint AS base
), changed AS (
    UPDATE tasks t SET state = u.state, version = u.version, epoch = u.epoch, wake_at = u.wake_at,
        updated_at = u.at, holder = u.holder, memo = u.memo, flags = u.flags,
        last_event = (SELECT base FROM h) + u.nth
    FROM u WHERE t.key = u.key
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT base FROM h) + nth, previous, key, version, at, kind, trigger, state, epoch, data
    FROM u
)
SELECT (SELECT base FROM h),
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- And where they also have most of it in common.

-- name: save_alike
WITH u AS MATERIALIZED (
    SELECT * FROM unnest(:hot_keys::bigint[], :hot_memos::text[], :datas::text[],
                         :previous::bigint[])
         WITH ORDINALITY AS u (key, memo, data, previous, nth)
), h AS (
    UPDATE head SET position = position + :count::bigint
    WHERE lanes = :known_lanes::text RETURNING position - :count::bigint AS base
), changed AS (
    UPDATE tasks t SET state = :state::smallint, version = :version::integer,
        epoch = :epoch::integer, wake_at = :wake_at::bigint, updated_at = :at::bigint,
        holder = :holder::text, memo = u.memo, flags = :flags::smallint,
        last_event = (SELECT base FROM h) + u.nth
    FROM u WHERE t.key = u.key
), e AS (
    INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
    SELECT (SELECT base FROM h) + nth, previous, key, :version::integer, :at::bigint, :kind::text,
           :trigger::text, :state::smallint, :epoch::integer, data
    FROM u
)
SELECT (SELECT base FROM h),
       CASE WHEN :topics::text <> '' THEN pg_notify('agentq', :topics::text) END;

-- name: insert_effects
INSERT INTO outbox (key, version, number, lane, payload)
SELECT u.key, u.version, u.number, u.lane, u.payload
FROM unnest(:keys::bigint[], :versions::bigint[], :numbers::bigint[], :lanes::text[],
            :payloads::text[]) WITH ORDINALITY AS u (key, version, number, lane, payload, nth)
ORDER BY u.nth;

-- name: was_saved
WITH RECURSIVE chain (position, previous) AS (
    SELECT e.position, e.previous FROM tasks t JOIN events e ON e.position = t.last_event
    WHERE t.key = :key::bigint
    UNION ALL
    SELECT e.position, e.previous FROM chain JOIN events e ON e.position = chain.previous
)
SELECT 1 FROM chain JOIN events e USING (position)
WHERE key = :key::bigint AND version = :version::bigint AND at = :at::bigint
  AND kind = :kind::text AND trigger = :trigger::text AND data = :data::text;

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

-- name: insert_edges
INSERT INTO edges (parent, child) SELECT * FROM unnest(:parents::bigint[], :children::bigint[])
ON CONFLICT DO NOTHING;

-- name: mark_parents
UPDATE tasks SET flags = flags | 1 WHERE key IN (
    SELECT key FROM tasks WHERE key = ANY (:parents::bigint[]) ORDER BY key FOR UPDATE);

-- name: children
SELECT parent, child FROM edges WHERE parent = ANY (:keys::bigint[]) ORDER BY child, parent;

-- name: insert_roles
WITH new AS (
    INSERT INTO roles (name) SELECT * FROM unnest(:names::text[]) ON CONFLICT (name) DO NOTHING
    RETURNING name
)
SELECT pg_notify('agentq', :topics::text) FROM new LIMIT 1;

-- name: open_circuit
SELECT open_until FROM circuits WHERE provider = :provider::text AND open_until >
    coalesce(:now::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- name: lock_role
SELECT id, name, max_running, max_review, paused, seen_at, provider, daily FROM roles
WHERE id = :role::integer FOR UPDATE;

-- name: want
INSERT INTO wants (key, resource) SELECT :key::bigint, unnest(:resources::text[])
ON CONFLICT DO NOTHING;

-- name: hold
INSERT INTO holds (resource, key)
SELECT resource, :key::bigint FROM unnest(:resources::text[]) AS u (resource) ORDER BY resource
ON CONFLICT (resource) DO NOTHING RETURNING resource;

-- name: unhold
DELETE FROM holds WHERE key = ANY (:keys::bigint[]);

-- name: recall
SELECT name, task_id, digest, state, expires_at FROM dedup WHERE name = ANY (:names::text[])
ORDER BY name;

-- Remembering is checked against what was recalled: whoever found no record must be the one who
-- makes it, and whoever replaces an old one must still find that one.

-- name: remember_new
INSERT INTO dedup (name, task_id, digest, state, expires_at)
SELECT * FROM unnest(:names::text[], :ids::text[], :digests::text[], :states::bigint[],
                     :expiries::bigint[]) AS u (name, id, digest, state, expires_at) ORDER BY name
ON CONFLICT (name) DO NOTHING RETURNING name;

-- name: remember_instead
UPDATE dedup d SET task_id = u.id, digest = u.digest, state = u.state, expires_at = u.expires_at
FROM unnest(:names::text[], :ids::text[], :digests::text[], :states::bigint[],
            :expiries::bigint[], :old_ids::text[], :old_expiries::bigint[])
     AS u (name, id, digest, state, expires_at, old_id, old_expires_at)
WHERE d.name = u.name AND d.task_id = u.old_id AND d.expires_at = u.old_expires_at
RETURNING d.name;

-- name: remember_anyway
INSERT INTO dedup (name, task_id, digest, state, expires_at)
SELECT * FROM unnest(:names::text[], :ids::text[], :digests::text[], :states::bigint[],
                     :expiries::bigint[]) AS u (name, id, digest, state, expires_at) ORDER BY name
ON CONFLICT (name) DO UPDATE SET task_id = excluded.task_id, digest = excluded.digest,
    state = excluded.state, expires_at = excluded.expires_at;

-- name: add_artifacts
INSERT INTO artifacts (key, epoch, name, size, sha256, media_type, at)
SELECT * FROM unnest(:keys::bigint[], :epochs::bigint[], :names::text[], :sizes::bigint[],
                     :digests::text[], :media_types::text[], :ats::bigint[])
ON CONFLICT DO NOTHING;

-- name: take_effects
WITH due AS MATERIALIZED (
    SELECT sequence FROM outbox WHERE lane = :lane::text AND due_at <= :now::bigint
    ORDER BY sequence LIMIT :count::bigint FOR UPDATE SKIP LOCKED
)
UPDATE outbox o SET due_at = :until::bigint, tries = tries + 1
FROM due WHERE o.sequence = due.sequence
RETURNING o.sequence, o.key || '.' || o.version || '.' || o.number,
    (SELECT id FROM specs s WHERE s.key = o.key), o.lane, o.payload, o.tries;

-- name: ack_effects
DELETE FROM outbox WHERE sequence IN (
    SELECT sequence FROM outbox WHERE sequence = ANY (:sequences::bigint[])
    ORDER BY sequence FOR UPDATE);

-- The same as `prunable`, of these very tasks: asked under lock, so it reads no others.

-- name: still_prunable
SELECT t.key FROM tasks t
WHERE t.key = ANY (:keys::bigint[])
  AND t.state >= 5 AND t.updated_at < :before::bigint AND t.holder = ''
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.key = t.key)
  AND NOT EXISTS (SELECT 1 FROM edges e JOIN tasks c ON c.key = e.child
                  WHERE e.parent = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM tree_members m JOIN tasks c ON c.key = m.key
                  WHERE m.root = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
ORDER BY t.key;

-- Who names others in its own words. A quote inside a text is escaped: only a field looks like this.
-- OFFSET 0: live tasks are few, and their words are looked up; those of all tasks are not read.

-- name: naming
SELECT t.key, s.submitted_at, s.body
FROM (SELECT key FROM tasks WHERE state < 5 AND key > :after_key::bigint OFFSET 0) AS t
CROSS JOIN LATERAL (SELECT * FROM specs WHERE specs.key = t.key OFFSET 0) AS s
WHERE s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%'
ORDER BY t.key LIMIT :count::bigint;

-- name: forget_dedup
WITH gone AS (DELETE FROM dedup WHERE expires_at <= :now::bigint RETURNING 1)
SELECT count(*) FROM gone;

-- name: delete
WITH RECURSIVE chain (position, previous) AS (
    SELECT e.position, e.previous FROM tasks t JOIN events e ON e.position = t.last_event
    WHERE t.key = ANY (:keys::bigint[])
    UNION ALL
    SELECT e.position, e.previous FROM chain JOIN events e ON e.position = chain.previous
), outcomes AS (
    UPDATE dedup d SET state = t.state FROM tasks t JOIN specs s ON s.key = t.key
    WHERE t.key = ANY (:keys::bigint[]) AND d.task_id = s.id
), gone_events AS (DELETE FROM events WHERE position IN (SELECT position FROM chain)
), gone_artifacts AS (DELETE FROM artifacts WHERE key = ANY (:keys::bigint[])
), gone_effects AS (DELETE FROM outbox WHERE key = ANY (:keys::bigint[])
), gone_holds AS (DELETE FROM holds WHERE key = ANY (:keys::bigint[])
), gone_wants AS (DELETE FROM wants WHERE key = ANY (:keys::bigint[])
), gone_members AS (DELETE FROM tree_members WHERE key = ANY (:keys::bigint[])
), gone_edges AS (
    DELETE FROM edges WHERE child = ANY (:keys::bigint[]) OR parent = ANY (:keys::bigint[])
), gone_tasks AS (DELETE FROM tasks WHERE key = ANY (:keys::bigint[]))
DELETE FROM specs WHERE key = ANY (:keys::bigint[]);

-- name: fell_trees
DELETE FROM trees r WHERE NOT EXISTS (SELECT 1 FROM tree_members m WHERE m.root = r.root);

-- Amounts travel as text: the wire knows whole numbers and texts.

-- name: add_spending
INSERT INTO spending (kind, name, day, usd, tokens, turns, seconds)
SELECT kind, name, day, usd::double precision, tokens::double precision, turns::double precision,
       seconds::double precision
FROM unnest(:kinds::text[], :names::text[], :days::bigint[], :usds::text[], :tokens::text[],
            :turns::text[], :seconds::text[])
     AS u (kind, name, day, usd, tokens, turns, seconds)
ORDER BY kind, name, day
ON CONFLICT (kind, name, day) DO UPDATE SET usd = spending.usd + excluded.usd,
    tokens = spending.tokens + excluded.tokens, turns = spending.turns + excluded.turns,
    seconds = spending.seconds + excluded.seconds;

-- name: trees_of
SELECT root, name, budget, extra, spent, used_up FROM trees WHERE root IN (
    SELECT root FROM tree_members WHERE key = ANY (:keys::bigint[]))
ORDER BY root;

-- name: lock_trees
SELECT m.key, r.root, r.name, r.budget, r.extra, r.spent, r.used_up
FROM tree_members m JOIN trees r ON r.root = m.root
WHERE m.key = ANY (:keys::bigint[]) ORDER BY r.root, m.key FOR UPDATE OF r;

-- name: membership
SELECT s.id, m.root FROM specs s JOIN tree_members m ON m.key = s.key
WHERE s.id = ANY (:ids::text[]) ORDER BY s.id, m.root;

-- name: set_trees
INSERT INTO trees (root, name, budget, extra, spent, used_up)
SELECT * FROM unnest(:roots::bigint[], :names::text[], :budgets::text[], :extras::text[],
                     :spents::text[], :used_ups::bigint[])
     AS u (root, name, budget, extra, spent, used_up) ORDER BY root
ON CONFLICT (root) DO UPDATE SET budget = excluded.budget, extra = excluded.extra,
    spent = excluded.spent, used_up = excluded.used_up;

-- name: join_trees
INSERT INTO tree_members (key, root) SELECT * FROM unnest(:keys::bigint[], :roots::bigint[])
ON CONFLICT DO NOTHING;

-- name: waiting_roles
SELECT DISTINCT r.name FROM tree_members m JOIN tasks t ON t.key = m.key
JOIN roles r ON r.id = t.role
WHERE m.root = ANY (:roots::bigint[]) AND t.state = 1 ORDER BY r.name;

-- name: replan
DISCARD PLANS;

-- What a new connection is asked and told. The server shall notice within half a minute that the
-- machine of a client is gone, and end what it had begun; by default it waits two hours, with locks.

-- name: settings
SELECT current_setting('synchronous_commit'),
       current_setting('transaction_read_only'),
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

-- How long a statement may run and wait for locks, where only transactions can be told: in a
-- session of its own the opening packet has said it (see postgres_limits.py).

-- name: limits
SELECT set_config('statement_timeout', :statement_timeout::text, true),
       set_config('lock_timeout', :lock_timeout::text, true);

-- name: newest_migration
SELECT coalesce(max(version), 0)::bigint FROM schema_migrations;

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

-- name: dead_rows
SELECT relname::text, n_dead_tup::bigint, n_live_tup::bigint FROM pg_stat_user_tables
WHERE relid IN ('tasks'::regclass, 'events'::regclass, 'specs'::regclass, 'outbox'::regclass,
                'head'::regclass)
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

-- What the loops of `agentq up` ask. Reading the outbox hides nothing: a loop that runs alone needs
-- no commit before it may carry an effect out.

-- name: leaving
WITH due AS MATERIALIZED (
    SELECT * FROM outbox WHERE lane = :lane::text AND due_at <=
        coalesce(:now::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    ORDER BY sequence LIMIT :count::bigint
)
SELECT o.sequence, o.key || '.' || o.version || '.' || o.number, s.id, o.lane, o.payload, o.tries,
       t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       s.submitted_at, s.body
FROM due o
CROSS JOIN LATERAL (SELECT * FROM tasks WHERE key = o.key LIMIT 1) AS t
CROSS JOIN LATERAL (SELECT * FROM specs WHERE key = o.key LIMIT 1) AS s
ORDER BY o.sequence;

-- name: ready_after
WITH ready AS MATERIALIZED (
    SELECT * FROM tasks
    WHERE role = :role::integer AND state = 1 AND state < 5 AND updated_at <= :before::bigint
      AND (priority, key) > (:priority::smallint, :key::bigint)
    ORDER BY priority, key LIMIT :count::bigint
)
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       s.submitted_at, s.body
FROM ready t
CROSS JOIN LATERAL (SELECT submitted_at, body FROM specs WHERE key = t.key LIMIT 1) AS s
ORDER BY t.priority, t.key;

-- name: relax
SELECT set_config('synchronous_commit', 'off', true);

-- name: postpone_effects
UPDATE outbox SET due_at = :until::bigint, tries = tries + 1 WHERE sequence IN (
    SELECT sequence FROM outbox WHERE sequence = ANY (:sequences::bigint[])
    ORDER BY sequence FOR UPDATE);

-- name: insert_terms
INSERT INTO terms (name, holder, term, expires_at)
SELECT name, '', 0, 0 FROM unnest(:names::text[]) AS u (name) ORDER BY name
ON CONFLICT (name) DO NOTHING;

-- name: lock_terms
SELECT name, holder, term, expires_at FROM terms WHERE name = ANY (:names::text[])
ORDER BY name FOR UPDATE;

-- name: set_terms
UPDATE terms t SET holder = u.holder, term = u.term, expires_at = u.expires_at
FROM unnest(:names::text[], :holders::text[], :numbers::bigint[], :expiries::bigint[])
     AS u (name, holder, term, expires_at)
WHERE t.name = u.name;
