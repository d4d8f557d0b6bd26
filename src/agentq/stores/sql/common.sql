-- Statements that both databases understand word for word.

-- name: ids_starting
SELECT id FROM specs WHERE id >= :low AND id < :high ORDER BY id LIMIT :count;

-- name: keys_after
SELECT key FROM tasks WHERE key > :key ORDER BY key LIMIT :count;

-- name: events_of
WITH RECURSIVE chain (position, previous) AS (
    SELECT e.position, e.previous FROM tasks t JOIN events e ON e.position = t.last_event
    WHERE t.key = :key
    UNION ALL
    SELECT e.position, e.previous FROM chain JOIN events e ON e.position = chain.previous
)
SELECT e.position, s.id, e.key, e.version, e.at, e.kind, e.trigger, e.state, e.epoch, e.data
FROM chain JOIN events e ON e.position = chain.position JOIN specs s ON s.key = e.key
ORDER BY e.position;

-- name: events_after
SELECT e.position, s.id, e.key, e.version, e.at, e.kind, e.trigger, e.state, e.epoch, e.data
FROM events e JOIN specs s ON s.key = e.key
WHERE e.position > :position ORDER BY e.position LIMIT :count;

-- name: counts
SELECT r.name, t.state, count(*) FROM tasks t JOIN roles r ON r.id = t.role
GROUP BY r.name, t.state ORDER BY r.name, t.state;

-- name: oldest_ready
SELECT r.name, min(t.updated_at)
FROM tasks t JOIN roles r ON r.id = t.role
WHERE t.state = 1 AND t.state < 5 GROUP BY r.name ORDER BY r.name;

-- name: artifacts_of
SELECT key, epoch, name, size, sha256, media_type, at FROM artifacts
WHERE key = :key ORDER BY epoch, name;

-- name: roles
SELECT id, name, max_running, max_review, paused, seen_at, provider, daily FROM roles ORDER BY name;

-- name: occupancy
SELECT coalesce(sum(CASE WHEN state IN (2, 7) THEN 1 ELSE 0 END), 0),
       coalesce(sum(CASE WHEN state = 3 THEN 1 ELSE 0 END), 0)
FROM (
    SELECT state FROM tasks WHERE role = :role AND state IN (2, 3) AND state < 5
    UNION ALL
    SELECT state FROM tasks WHERE state = 7 AND wake_at > 0 AND role = :role
) AS occupied;

-- name: parents_of
SELECT parent FROM edges WHERE child = :key ORDER BY parent;

-- name: ahead
SELECT count(*) FROM tasks WHERE role = :role AND state = 1 AND state < 5
  AND (priority < :priority OR (priority = :priority AND key < :key));

-- name: halves
SELECT s.key FROM specs s WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.key = s.key)
UNION
SELECT t.key FROM tasks t WHERE NOT EXISTS (SELECT 1 FROM specs s WHERE s.key = t.key)
UNION
SELECT e.key FROM events e WHERE NOT EXISTS (SELECT 1 FROM specs s WHERE s.key = e.key)
LIMIT :count;

-- name: outbox_counts
SELECT lane, count(*) FROM outbox GROUP BY lane ORDER BY lane;

-- name: outbox_after
SELECT o.sequence, o.key || '.' || o.version || '.' || o.number, '', o.lane, o.payload, o.tries
FROM outbox o WHERE o.lane = :lane AND o.sequence > :sequence ORDER BY o.sequence LIMIT :count;

-- name: set_role
UPDATE roles SET max_running = :max_running, max_review = :max_review, paused = :paused,
    seen_at = :seen_at, provider = :provider, daily = :daily WHERE id = :id;

-- name: forget_dedup
DELETE FROM dedup WHERE expires_at <= :now;

-- name: role
SELECT id, name, max_running, max_review, paused, seen_at, provider, daily FROM roles WHERE id = :role;

-- name: last_key
SELECT coalesce(max(key), 0) FROM tasks;

-- name: next_wake
SELECT coalesce(min(wake_at), 0) FROM tasks WHERE wake_at > 0;

-- What is not over keeps the tasks it comes after, and the root of its tree: whoever works on it
-- reads their results, and its budget is raised there. OFFSET 0 keeps PostgreSQL from joining all
-- edges first: a few are looked up, of as many tasks as are wanted.

-- name: prunable
SELECT t.key FROM tasks t
WHERE t.key > :after_key AND t.state >= 5 AND t.updated_at < :before AND t.holder = ''
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.key = t.key)
  AND NOT EXISTS (SELECT 1 FROM edges e JOIN tasks c ON c.key = e.child
                  WHERE e.parent = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM tree_members m JOIN tasks c ON c.key = m.key
                  WHERE m.root = t.key AND (c.state < 5 OR c.holder <> '') LIMIT 1 OFFSET 0)
ORDER BY t.key LIMIT :count;

-- name: circuits
SELECT provider, open_until, reason, opened_at, opened_by FROM circuits ORDER BY provider;

-- name: extend_circuit
INSERT INTO circuits (provider, open_until, reason, opened_at, opened_by)
VALUES (:provider, :open_until, :reason, :opened_at, :opened_by)
ON CONFLICT (provider) DO UPDATE SET open_until = excluded.open_until, reason = excluded.reason,
    opened_at = CASE WHEN circuits.open_until > excluded.opened_at THEN circuits.opened_at
                     ELSE excluded.opened_at END,
    opened_by = excluded.opened_by
WHERE excluded.open_until > circuits.open_until;

-- name: circuit
SELECT provider, open_until, reason, opened_at, opened_by FROM circuits
WHERE provider = :provider;

-- name: close_circuit
UPDATE circuits SET open_until = :at, reason = :reason
WHERE provider = :provider AND open_until > :at RETURNING provider;

-- name: spent_on
SELECT kind, name, day, usd, tokens, turns, seconds FROM spending
WHERE kind = :kind AND name = :name AND day = :day;

-- name: spending
SELECT kind, name, day, usd, tokens, turns, seconds FROM spending
WHERE kind = :kind ORDER BY name, day;

-- name: forget_spending
DELETE FROM spending WHERE kind = :kind AND day < :before_day;

-- name: ready_counts
SELECT r.name, count(*) FROM tasks t JOIN roles r ON r.id = t.role
WHERE t.state = 1 AND t.state < 5 GROUP BY r.name ORDER BY r.name;

-- name: terms
SELECT name, holder, term, expires_at FROM terms ORDER BY name;
