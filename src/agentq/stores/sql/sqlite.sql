-- name: keys
SELECT id, key FROM specs WHERE id IN (SELECT value FROM json_each(?));

-- name: tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM json_each(?) j JOIN tasks t ON t.key = j.value JOIN specs s ON s.key = t.key;

-- name: tasks_named
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM json_each(?) j JOIN specs s ON s.id = j.value JOIN tasks t ON t.key = s.key ORDER BY t.key;

-- name: lanes
SELECT lanes FROM head;

-- name: ledger_id
SELECT ledger_id FROM head;

-- name: set_lanes
UPDATE head SET lanes = ?;

-- name: set_floors
UPDATE head SET floor = max(floor, (SELECT coalesce(max(position), 0) FROM events)),
    key_floor = max(key_floor, (SELECT coalesce(max(key), 0) FROM specs));

-- name: insert_spec
INSERT INTO specs (key, id, submitted_at, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING;

-- name: insert_task
INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder, memo,
                   flags, digest, last_event)
VALUES (?, ?, ?, ?, 1, 0, ?, ?, '', ?, ?, ?, ?);

-- name: insert_event
INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data,
                    digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_task
UPDATE tasks SET state = ?, version = ?, epoch = ?, wake_at = ?, updated_at = ?, holder = ?,
    memo = ?, flags = ?, digest = ?, last_event = ? WHERE key = ?;

-- name: rebuild_task
UPDATE tasks SET state = ?, version = ?, epoch = ?, wake_at = ?, updated_at = ?, holder = ?,
    memo = ?, flags = ?, digest = ?, role = ?, priority = ? WHERE key = ?;

-- name: set_address
UPDATE tasks SET role = ?, priority = ? WHERE key = ?;

-- name: insert_effect
INSERT INTO outbox (key, version, number, lane, payload) VALUES (?, ?, ?, ?, ?);

-- name: lock
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event
FROM tasks t WHERE t.key IN (SELECT value FROM json_each(?)) ORDER BY t.key;

-- name: lock_one
SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, digest, last_event
FROM tasks WHERE key = ?;

-- Tasks whose resources are all held, or may not be taken so soon again, are passed over; a bucket
-- of a moment that is still to come by more than a minute is measured anew by the ledger: the clock
-- was set back.

-- name: pick
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_live CROSS JOIN specs s ON s.key = t.key
WHERE t.role = :role AND t.state = 1 AND t.state < 5
  AND (t.flags & 6 = 0 OR NOT EXISTS (
      SELECT 1 FROM wants w LEFT JOIN resources k ON k.name = w.resource
      WHERE w.key = t.key AND (
          (SELECT count(*) FROM holds h WHERE h.resource = w.resource) >= coalesce(k.max_held, 1)
          OR (k.next_at > :now AND k.level_at <= :now + 60000)))
    AND NOT EXISTS (
      SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
      WHERE m.key = t.key AND r.used_up = 1))
ORDER BY t.priority, t.key LIMIT :count;

-- name: pick_named
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM json_each(:ids) w CROSS JOIN specs s ON s.id = w.value CROSS JOIN tasks t ON t.key = s.key
WHERE t.role = :role AND t.state = 1
  AND (t.flags & 6 = 0 OR NOT EXISTS (
      SELECT 1 FROM wants w LEFT JOIN resources k ON k.name = w.resource
      WHERE w.key = t.key AND (
          (SELECT count(*) FROM holds h WHERE h.resource = w.resource) >= coalesce(k.max_held, 1)
          OR (k.next_at > :now AND k.level_at <= :now + 60000)))
    AND NOT EXISTS (
      SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
      WHERE m.key = t.key AND r.used_up = 1))
ORDER BY w.key;

-- name: pick_after
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_live CROSS JOIN specs s ON s.key = t.key
WHERE t.role = :role AND t.state = 1 AND t.state < 5
  AND (t.priority, t.key) > (:priority, :key)
  AND (t.flags & 6 = 0 OR NOT EXISTS (
      SELECT 1 FROM wants w LEFT JOIN resources k ON k.name = w.resource
      WHERE w.key = t.key AND (
          (SELECT count(*) FROM holds h WHERE h.resource = w.resource) >= coalesce(k.max_held, 1)
          OR (k.next_at > :now AND k.level_at <= :now + 60000)))
    AND NOT EXISTS (
      SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
      WHERE m.key = t.key AND r.used_up = 1))
ORDER BY t.priority, t.key LIMIT :count;

-- name: due
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_due CROSS JOIN specs s ON s.key = t.key
WHERE t.wake_at > 0 AND t.wake_at <= ? ORDER BY t.wake_at LIMIT ?;

-- name: renew
UPDATE tasks SET wake_at = max(wake_at, ?) WHERE key = ? AND epoch = ? AND state = 2
RETURNING key;

-- name: insert_edge
INSERT INTO edges (parent, child) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: mark_parent
UPDATE tasks SET flags = flags | 1 WHERE key = ?;

-- name: role_id
SELECT id FROM roles WHERE name = ?;

-- name: insert_role
INSERT INTO roles (name) VALUES (?) ON CONFLICT (name) DO NOTHING;

-- name: add_wanted_resources
INSERT INTO wants (key, resource) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: hold_resource
INSERT INTO holds (resource, place, key) VALUES (?, ?, ?) ON CONFLICT (resource, place) DO NOTHING;

-- name: release_resources
DELETE FROM holds WHERE key = ?;

-- name: resources
SELECT name, max_held, rate, level, level_at, next_at FROM resources
WHERE name IN (SELECT value FROM json_each(?)) ORDER BY name;

-- name: holders_of
SELECT h.resource, h.place, s.id FROM holds h JOIN specs s ON s.key = h.key
WHERE h.resource IN (SELECT value FROM json_each(?)) ORDER BY h.resource, h.place;

-- name: next_wake
SELECT coalesce(min(moment), 0) FROM (
    SELECT min(wake_at) AS moment FROM tasks WHERE wake_at > 0
    UNION ALL SELECT min(next_at) FROM roles WHERE next_at > :now
    UNION ALL SELECT min(next_at) FROM resources WHERE next_at > :now);

-- name: keep_outcome
UPDATE dedup SET state = (SELECT t.state FROM tasks t JOIN specs s ON s.key = t.key
                          WHERE s.id = dedup.task_id)
WHERE task_id = (SELECT id FROM specs WHERE key = ?);

-- name: add_artifact
INSERT INTO artifacts (key, epoch, name, size, sha256, media_type, at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: ack_effect
DELETE FROM outbox WHERE sequence = ?;

-- name: delete_events
WITH RECURSIVE chain (position, previous) AS (
    SELECT e.position, e.previous FROM tasks t JOIN events e ON e.position = t.last_event
    WHERE t.key = ?
    UNION ALL
    SELECT e.position, e.previous FROM chain JOIN events e ON e.position = chain.previous
    WHERE e.position < chain.position  -- a damaged chain may lead back to itself
)
DELETE FROM events WHERE position IN (SELECT position FROM chain);

-- name: delete_artifacts
DELETE FROM artifacts WHERE key = ?;

-- name: delete_outbox
DELETE FROM outbox WHERE key = ?;

-- name: delete_wants
DELETE FROM wants WHERE key = ?;

-- name: delete_parents
DELETE FROM edges WHERE child = ?;

-- name: delete_children
DELETE FROM edges WHERE parent = ?;

-- name: delete_task
DELETE FROM tasks WHERE key = ?;

-- name: delete_spec
DELETE FROM specs WHERE key = ?;

-- name: add_spending
INSERT INTO spending (kind, name, day, usd, tokens, turns, seconds, estimated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, name, day) DO UPDATE SET usd = usd + excluded.usd,
    tokens = tokens + excluded.tokens, turns = turns + excluded.turns,
    seconds = seconds + excluded.seconds, estimated = estimated + excluded.estimated;

-- name: set_tree
INSERT INTO trees (root, name, budget, extra, spent, used_up) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (root) DO UPDATE SET budget = excluded.budget, extra = excluded.extra,
    spent = excluded.spent, used_up = excluded.used_up;

-- name: drop_tree
DELETE FROM trees WHERE root = ?;

-- name: drop_lone_tree
DELETE FROM trees WHERE root = ?1 AND NOT EXISTS (SELECT 1 FROM tree_members WHERE root = ?1);

-- name: join_tree
INSERT INTO tree_members (key, root) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: leave_trees
DELETE FROM tree_members WHERE key = ?;

-- name: postpone_effect
UPDATE outbox SET due_at = ?, tries = tries + 1 WHERE sequence = ?;

-- name: list_newest
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t JOIN specs s ON s.key = t.key
WHERE (:key = 0 OR t.key < :key)
  AND (:role = 0 OR t.role = :role)
  AND (:states = '[]' OR t.state IN (SELECT value FROM json_each(:states)))
  AND (:updated_before = 0 OR t.updated_at < :updated_before)
  AND (:sender = '' OR coalesce(s.body ->> '$.sender', 'coordinator') = :sender)
  AND (:type = '' OR coalesce(s.body ->> '$.type', 'task') = :type)
  AND (:refers = 0 OR s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%')
  AND NOT EXISTS (
      SELECT 1 FROM json_each(:labels) wanted
      WHERE NOT EXISTS (
          SELECT 1 FROM json_each(s.body, '$.labels') label
          WHERE label.key = wanted.value ->> 0 AND label.value = wanted.value ->> 1))
ORDER BY t.key DESC LIMIT :count;

-- name: list_oldest
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t CROSS JOIN specs s ON s.key = t.key
WHERE t.key > :key
  AND (:role = 0 OR t.role = :role)
  AND (:states = '[]' OR t.state IN (SELECT value FROM json_each(:states)))
  AND (:updated_before = 0 OR t.updated_at < :updated_before)
  AND (:sender = '' OR coalesce(s.body ->> '$.sender', 'coordinator') = :sender)
  AND (:type = '' OR coalesce(s.body ->> '$.type', 'task') = :type)
  AND (:refers = 0 OR s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%')
  AND NOT EXISTS (
      SELECT 1 FROM json_each(:labels) wanted
      WHERE NOT EXISTS (
          SELECT 1 FROM json_each(s.body, '$.labels') label
          WHERE label.key = wanted.value ->> 0 AND label.value = wanted.value ->> 1))
ORDER BY t.key LIMIT :count;

-- What is not over has an order of urgency within its role and state, and an index by it.

-- name: list_urgent
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_live CROSS JOIN specs s ON s.key = t.key
WHERE t.role = :role AND t.state = :state AND t.state < 5
  AND (t.priority, t.key) > (:priority, :key)
  AND (:updated_before = 0 OR t.updated_at < :updated_before)
ORDER BY t.priority, t.key LIMIT :count;

-- name: list_approval
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_approval CROSS JOIN specs s ON s.key = t.key
WHERE t.state = 0 AND t.flags >= 8 AND t.flags & 8 <> 0 AND t.key > :key
ORDER BY t.key LIMIT :count;

-- name: list_mentioned
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_mentioned CROSS JOIN specs s ON s.key = t.key
WHERE t.flags >= 16 AND t.key > :key
ORDER BY t.key LIMIT :count;

-- name: list_dead
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.digest, t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_dead CROSS JOIN specs s ON s.key = t.key
WHERE t.state IN (6, 8) AND (:key = 0 OR t.key < :key)
ORDER BY t.key DESC LIMIT :count;

-- name: last_position
SELECT max(coalesce((SELECT floor FROM head), 0), coalesce((SELECT max(position) FROM events), 0));

-- name: head
SELECT max(key_floor, coalesce((SELECT max(key) FROM specs), 0)),
       max(floor, coalesce((SELECT max(position) FROM events), 0)),
       lanes
FROM head;

-- name: edges_of
SELECT parent, child FROM edges WHERE parent IN (SELECT value FROM json_each(:keys))
UNION
SELECT parent, child FROM edges WHERE child IN (SELECT value FROM json_each(:keys))
ORDER BY child, parent;

-- name: trees_of
SELECT m.key, r.root, r.name, r.budget, r.extra, r.spent, r.used_up
FROM tree_members m JOIN trees r ON r.root = m.root
WHERE m.key IN (SELECT value FROM json_each(?)) ORDER BY r.root, m.key;

-- name: delete_trees
DELETE FROM trees WHERE NOT EXISTS (SELECT 1 FROM tree_members m WHERE m.root = trees.root);

-- name: dedup_records
SELECT name, task_id, digest, state, expires_at FROM dedup
WHERE name IN (SELECT value FROM json_each(?));

-- name: insert_dedup
INSERT INTO dedup (name, task_id, digest, state, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: save_dedup
INSERT INTO dedup (name, task_id, digest, state, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET task_id = excluded.task_id, digest = excluded.digest,
    state = excluded.state, expires_at = excluded.expires_at;

-- name: forget_dedup
DELETE FROM dedup WHERE expires_at <= ?;

-- name: lock_hook_delivery
SELECT way, hook, delivery_id, received_at, state, attempts, error, tasks, headers, '', number
FROM hook_deliveries WHERE number = :number;

-- What still waits stays: its id may be known no longer, and come again.

-- name: save_hook_delivery
INSERT INTO hook_deliveries (way, hook, delivery_id, received_at, state, attempts, error, tasks,
                             headers, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (way, hook, delivery_id) DO UPDATE SET received_at = excluded.received_at,
    state = excluded.state, attempts = excluded.attempts, error = excluded.error,
    tasks = excluded.tasks, headers = excluded.headers, body = excluded.body
WHERE hook_deliveries.way = 'out' OR hook_deliveries.state <> 0;

-- name: save_webhook_target
INSERT INTO webhook_targets (name, position, failures, due_at, disabled_at, sent, last_at, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET position = excluded.position, failures = excluded.failures,
    due_at = excluded.due_at, disabled_at = excluded.disabled_at, sent = excluded.sent,
    last_at = excluded.last_at, error = excluded.error;

-- name: save_sample
INSERT INTO samples (span_ms, at, role, body) VALUES (?, ?, ?, ?)
ON CONFLICT (span_ms, at, role) DO UPDATE SET body = excluded.body;

-- name: forget_labels
DELETE FROM spending
WHERE (kind = 'label' AND day < ?1) OR (kind = 'submits' AND day < ?1 * 144);

-- name: insert_leader_lease
INSERT INTO terms (name, holder, term, expires_at) VALUES (?, '', 0, 0) ON CONFLICT DO NOTHING;

-- name: set_leader_lease
UPDATE terms SET holder = :holder, term = :term, expires_at = :expires_at, body = :body
WHERE name = :name;

-- name: forget_workers
DELETE FROM terms WHERE name LIKE 'worker:%' AND expires_at < :workers_before;

-- name: artifacts_of
SELECT key, epoch, name, size, sha256, media_type, at FROM artifacts
WHERE key IN (SELECT value FROM json_each(:keys)) ORDER BY key, epoch, name;

-- name: due_effects
SELECT o.sequence, o.key, o.key || '.' || o.version || '.' || o.number, o.lane, o.payload, o.tries
FROM outbox o
WHERE o.lane = :lane AND o.sequence > :after AND o.due_at <= :now ORDER BY o.sequence LIMIT :count;

-- The same as `prunable`, of these very tasks: asked under lock, so it reads no others.

-- name: prunable_of
SELECT t.key FROM tasks t
WHERE t.key IN (SELECT value FROM json_each(:keys))
  AND t.key > :after_key AND t.state >= 5 AND t.updated_at < :before AND t.holder = ''
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.key = t.key)
  AND NOT EXISTS (SELECT 1 FROM edges e JOIN tasks c ON c.key = e.child
                  WHERE e.parent = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM tree_members m JOIN tasks c ON c.key = m.key
                  WHERE m.root = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
ORDER BY t.key LIMIT :count;

-- CROSS JOIN keeps the order of the tables: left to itself, SQLite walks all events of the ledger in
-- the order that is asked for, and looks each up in the chain.

-- name: history
WITH RECURSIVE chain (position, previous) AS (
    SELECT e.position, e.previous FROM tasks t JOIN events e ON e.position = t.last_event
    WHERE t.key IN (SELECT value FROM json_each(:keys))
    UNION ALL
    SELECT e.position, e.previous FROM chain JOIN events e ON e.position = chain.previous
    WHERE e.position < chain.position  -- a damaged chain may lead back to itself
)
SELECT e.position, s.id, e.key, e.version, e.at, e.kind, e.trigger, e.state, e.epoch, e.data,
       e.digest
FROM chain CROSS JOIN events e ON e.position = chain.position CROSS JOIN specs s ON s.key = e.key
ORDER BY e.key, e.version;

-- name: events_after
SELECT e.position, s.id, e.key, e.version, e.at, e.kind, e.trigger, e.state, e.epoch, e.data,
       e.digest
FROM events e JOIN specs s ON s.key = e.key
WHERE e.position > :position ORDER BY e.position LIMIT :count;

-- name: orphan_rows
SELECT s.key FROM specs s WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.key = s.key)
UNION
SELECT t.key FROM tasks t WHERE NOT EXISTS (SELECT 1 FROM specs s WHERE s.key = t.key)
UNION
SELECT e.key FROM events e WHERE NOT EXISTS (SELECT 1 FROM specs s WHERE s.key = e.key)
UNION
SELECT e.key FROM events e WHERE (e.version = 1) <> (e.previous = 0)
UNION
SELECT e.key FROM (SELECT key, count(*) AS events FROM events GROUP BY key) e
JOIN tasks t ON t.key = e.key WHERE e.events <> t.version
LIMIT :count;

-- name: ledger_counts
SELECT (SELECT count(*) FROM specs),
       max(key_floor, coalesce((SELECT max(key) FROM specs), 0)),
       (SELECT count(*) FROM events),
       max(floor, coalesce((SELECT max(position) FROM events), 0)),
       (SELECT count(*) FROM outbox WHERE lane = 'submissions')
FROM head;

-- name: schedules_named
SELECT name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at, paused,
       problem, fired, skipped, open_tasks, note
FROM schedules WHERE name IN (SELECT value FROM json_each(?)) ORDER BY name;

-- name: set_schedule
INSERT INTO schedules (name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at,
                       paused, problem, fired, skipped, open_tasks, note)
VALUES (:name, :rule, :digest, :since_at, :next_at, :wake_at, :last_at, :asked_at, :ran_at,
        :paused, :problem, :fired, :skipped, :open_tasks, :note)
ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, digest = excluded.digest,
    since_at = excluded.since_at, next_at = excluded.next_at, wake_at = excluded.wake_at,
    last_at = excluded.last_at, asked_at = excluded.asked_at, ran_at = excluded.ran_at,
    paused = excluded.paused, problem = excluded.problem, fired = excluded.fired, skipped = excluded.skipped,
    open_tasks = excluded.open_tasks, note = excluded.note;

-- name: drop_schedule
DELETE FROM schedules WHERE name = ?;

-- name: add_system_event
INSERT INTO system_events (number, at, kind, subject, position, data, digest)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: log_length
SELECT max(coalesce((SELECT floor FROM head), 0), coalesce((SELECT max(position) FROM events), 0)),
       (SELECT count(*) FROM events);
