-- name: keys
SELECT id, key FROM specs WHERE id IN (SELECT value FROM json_each(?));

-- name: tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM json_each(?) j JOIN tasks t ON t.key = j.value JOIN specs s ON s.key = t.key;

-- name: list_tasks
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM tasks t JOIN specs s ON s.key = t.key
WHERE (:before_key = 0 OR t.key < :before_key)
  AND (:role = 0 OR t.role = :role)
  AND (:states = '[]' OR t.state IN (SELECT value FROM json_each(:states)))
  AND (:sender = '' OR coalesce(s.body ->> '$.sender', 'coordinator') = :sender)
  AND (:type = '' OR coalesce(s.body ->> '$.type', 'task') = :type)
  AND NOT EXISTS (
      SELECT 1 FROM json_each(:labels) wanted
      WHERE NOT EXISTS (
          SELECT 1 FROM json_each(s.body, '$.labels') label
          WHERE label.key = wanted.value ->> 0 AND label.value = wanted.value ->> 1))
ORDER BY t.key DESC LIMIT :count;

-- name: last_position
SELECT max((SELECT floor FROM head), coalesce((SELECT max(position) FROM events), 0));

-- name: lanes
SELECT lanes FROM head;

-- name: set_lanes
UPDATE head SET lanes = ?;

-- name: set_floors
UPDATE head SET floor = max(floor, (SELECT coalesce(max(position), 0) FROM events)),
    key_floor = max(key_floor, (SELECT coalesce(max(key), 0) FROM specs));

-- name: head
SELECT lanes, max(key_floor, coalesce((SELECT max(key) FROM specs), 0)),
       max(floor, coalesce((SELECT max(position) FROM events), 0))
FROM head;

-- name: insert_spec
INSERT INTO specs (key, id, submitted_at, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING;

-- name: newer_specs
SELECT id, key FROM specs WHERE key > ?;

-- name: insert_task
INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder, memo,
                   flags, last_event)
VALUES (?, ?, ?, ?, 1, 0, ?, ?, '', ?, ?, ?);

-- name: insert_tasks_alike
INSERT INTO tasks (key, role, priority, state, version, epoch, wake_at, updated_at, holder, memo,
                   flags, last_event)
SELECT key, :role, :priority, :state, 1, 0, :wake_at, :at, '', :memo, :flags, key + :ahead
FROM specs WHERE key > :last_key ORDER BY key;

-- name: insert_events_alike
INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
SELECT key + :ahead, 0, key, 1, :at, :kind, 'Submit', :state, 0, :data
FROM specs WHERE key > :last_key ORDER BY key;

-- name: insert_event
INSERT INTO events (position, previous, key, version, at, kind, trigger, state, epoch, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_task
UPDATE tasks SET state = ?, version = ?, epoch = ?, wake_at = ?, updated_at = ?, holder = ?,
    memo = ?, flags = ?, last_event = ? WHERE key = ?;

-- name: insert_effect
INSERT INTO outbox (key, version, number, lane, payload) VALUES (?, ?, ?, ?, ?);

-- name: lock
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event
FROM tasks t WHERE t.key IN (SELECT value FROM json_each(?)) ORDER BY t.key;

-- name: lock_one
SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, last_event
FROM tasks WHERE key = ?;

-- name: pick
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_live CROSS JOIN specs s ON s.key = t.key
WHERE t.role = ? AND t.state = 1 AND t.state < 5
  AND (t.flags & 6 = 0 OR NOT EXISTS (
      SELECT 1 FROM wants w JOIN holds h ON h.resource = w.resource WHERE w.key = t.key)
    AND NOT EXISTS (
      SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
      WHERE m.key = t.key AND r.used_up = 1))
ORDER BY t.priority, t.key LIMIT ?;

-- name: pick_named
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM json_each(:ids) w CROSS JOIN specs s ON s.id = w.value CROSS JOIN tasks t ON t.key = s.key
WHERE t.role = :role AND t.state = 1
  AND (t.flags & 6 = 0 OR NOT EXISTS (
      SELECT 1 FROM wants w JOIN holds h ON h.resource = w.resource WHERE w.key = t.key)
    AND NOT EXISTS (
      SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
      WHERE m.key = t.key AND r.used_up = 1))
ORDER BY w.key;

-- name: pick_after
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_live CROSS JOIN specs s ON s.key = t.key
WHERE t.role = ? AND t.state = 1 AND t.state < 5
  AND (t.priority, t.key) > (?, ?)
  AND (t.flags & 6 = 0 OR NOT EXISTS (
      SELECT 1 FROM wants w JOIN holds h ON h.resource = w.resource WHERE w.key = t.key)
    AND NOT EXISTS (
      SELECT 1 FROM tree_members m JOIN trees r ON r.root = m.root
      WHERE m.key = t.key AND r.used_up = 1))
ORDER BY t.priority, t.key LIMIT ?;

-- name: due
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_due CROSS JOIN specs s ON s.key = t.key
WHERE t.wake_at > 0 AND t.wake_at <= ? ORDER BY t.wake_at LIMIT ?;

-- name: renew
UPDATE tasks SET wake_at = max(wake_at, ?) WHERE key = ? AND epoch = ? AND state = 2
RETURNING key;

-- name: insert_edge
INSERT INTO edges (parent, child) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: mark_parent
UPDATE tasks SET flags = flags | 1 WHERE key = ?;

-- name: children
SELECT parent, child FROM edges WHERE parent IN (SELECT value FROM json_each(?))
ORDER BY child, parent;

-- name: role_id
SELECT id FROM roles WHERE name = ?;

-- name: insert_role
INSERT INTO roles (name) VALUES (?) ON CONFLICT (name) DO NOTHING;

-- name: want
INSERT INTO wants (key, resource) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: hold
INSERT INTO holds (resource, key) VALUES (?, ?) ON CONFLICT (resource) DO NOTHING;

-- name: unhold
DELETE FROM holds WHERE key = ?;

-- name: holders_of
SELECT h.resource, s.id FROM holds h JOIN specs s ON s.key = h.key
WHERE h.resource IN (SELECT value FROM json_each(?));

-- name: recall
SELECT name, task_id, digest, state, expires_at FROM dedup
WHERE name IN (SELECT value FROM json_each(?));

-- name: remember
INSERT INTO dedup (name, task_id, digest, state, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET task_id = excluded.task_id, digest = excluded.digest,
    state = excluded.state, expires_at = excluded.expires_at;

-- name: keep_outcome
UPDATE dedup SET state = (SELECT t.state FROM tasks t JOIN specs s ON s.key = t.key
                          WHERE s.id = dedup.task_id)
WHERE task_id = (SELECT id FROM specs WHERE key = ?);

-- name: add_artifact
INSERT INTO artifacts (key, epoch, name, size, sha256, media_type, at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: take_effects
UPDATE outbox SET due_at = ?, tries = tries + 1
WHERE sequence IN (SELECT sequence FROM outbox WHERE lane = ? AND due_at <= ?
                   ORDER BY sequence LIMIT ?)
RETURNING sequence, key || '.' || version || '.' || number,
    (SELECT id FROM specs WHERE specs.key = outbox.key), lane, payload, tries;

-- name: ack_effect
DELETE FROM outbox WHERE sequence = ?;

-- name: last_event
SELECT last_event FROM tasks WHERE key = ?;

-- name: delete_events
WITH RECURSIVE chain (position, previous) AS (
    SELECT e.position, e.previous FROM tasks t JOIN events e ON e.position = t.last_event
    WHERE t.key = ?
    UNION ALL
    SELECT e.position, e.previous FROM chain JOIN events e ON e.position = chain.previous
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
INSERT INTO spending (kind, name, day, usd, tokens, turns, seconds) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, name, day) DO UPDATE SET usd = usd + excluded.usd,
    tokens = tokens + excluded.tokens, turns = turns + excluded.turns,
    seconds = seconds + excluded.seconds;

-- name: trees_of
SELECT root, name, budget, extra, spent, used_up FROM trees WHERE root IN (
    SELECT root FROM tree_members WHERE key IN (SELECT value FROM json_each(?)))
ORDER BY root;

-- name: lock_trees
SELECT m.key, r.root, r.name, r.budget, r.extra, r.spent, r.used_up
FROM tree_members m JOIN trees r ON r.root = m.root
WHERE m.key IN (SELECT value FROM json_each(?)) ORDER BY r.root, m.key;

-- name: membership
SELECT s.id, m.root FROM specs s JOIN tree_members m ON m.key = s.key
WHERE s.id IN (SELECT value FROM json_each(?)) ORDER BY s.id, m.root;

-- name: set_tree
INSERT INTO trees (root, name, budget, extra, spent, used_up) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (root) DO UPDATE SET budget = excluded.budget, extra = excluded.extra,
    spent = excluded.spent, used_up = excluded.used_up;

-- name: join_tree
INSERT INTO tree_members (key, root) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: waiting_roles
SELECT DISTINCT r.name FROM tree_members m JOIN tasks t ON t.key = m.key
JOIN roles r ON r.id = t.role
WHERE m.root IN (SELECT value FROM json_each(?)) AND t.state = 1 ORDER BY r.name;

-- name: leave_trees
DELETE FROM tree_members WHERE key = ?;

-- name: fell_trees
DELETE FROM trees WHERE NOT EXISTS (SELECT 1 FROM tree_members m WHERE m.root = trees.root);

-- name: leaving
SELECT o.sequence, o.key || '.' || o.version || '.' || o.number, s.id, o.lane, o.payload, o.tries,
       t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       s.submitted_at, s.body
FROM outbox o CROSS JOIN tasks t ON t.key = o.key CROSS JOIN specs s ON s.key = o.key
WHERE o.lane = :lane AND o.due_at <= :now ORDER BY o.sequence LIMIT :count;

-- name: ready_after
SELECT t.key, t.state, t.version, t.epoch, t.wake_at, t.updated_at, t.holder, t.memo, t.flags,
       t.last_event, s.submitted_at, s.body
FROM tasks t INDEXED BY tasks_live CROSS JOIN specs s ON s.key = t.key
WHERE t.role = :role AND t.state = 1 AND t.state < 5 AND t.updated_at <= :before
  AND (t.priority, t.key) > (:priority, :key)
ORDER BY t.priority, t.key LIMIT :count;

-- name: postpone_effect
UPDATE outbox SET due_at = ?, tries = tries + 1 WHERE sequence = ?;

-- name: insert_term
INSERT INTO terms (name, holder, term, expires_at) VALUES (?, '', 0, 0) ON CONFLICT DO NOTHING;

-- name: set_term
UPDATE terms SET holder = :holder, term = :term, expires_at = :expires_at WHERE name = :name;

-- The same as `prunable`, of these very tasks: asked under lock, so it reads no others.

-- name: still_prunable
SELECT t.key FROM tasks t
WHERE t.key IN (SELECT value FROM json_each(:keys))
  AND t.state >= 5 AND t.updated_at < :before AND t.holder = ''
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.key = t.key)
  AND NOT EXISTS (SELECT 1 FROM edges e JOIN tasks c ON c.key = e.child
                  WHERE e.parent = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM tree_members m JOIN tasks c ON c.key = m.key
                  WHERE m.root = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
ORDER BY t.key;

-- Who names others in its own words. A quote inside a text is escaped: only a field looks like this.

-- name: naming
SELECT t.key, s.submitted_at, s.body FROM tasks t CROSS JOIN specs s ON s.key = t.key
WHERE t.key > :after_key AND t.state < 5
  AND (s.body LIKE '%"next":%' OR s.body LIKE '%"parent":%')
ORDER BY t.key LIMIT :count;
