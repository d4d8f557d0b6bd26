-- Statements that both databases understand word for word.

-- name: ids_starting
SELECT id FROM specs WHERE id >= :low AND id < :high ORDER BY id LIMIT :count;

-- name: counts
SELECT r.name, t.state, count(*), min(t.updated_at) FROM tasks t JOIN roles r ON r.id = t.role
GROUP BY r.name, t.state ORDER BY r.name, t.state;

-- name: live_counts
SELECT r.name, t.state, count(*), min(t.updated_at) FROM tasks t JOIN roles r ON r.id = t.role
WHERE t.state < 5 GROUP BY r.name, t.state ORDER BY r.name, t.state;

-- Each count ends at its limit, by the index of what is live: history and backlog cost nothing.

-- name: counts_at_most
SELECT r.name, s.column1, (
    SELECT count(*) FROM (
        SELECT 1 FROM tasks t WHERE t.role = r.id AND t.state = s.column1 AND t.state < 5
        LIMIT :at_most) AS counted), 0
FROM roles r CROSS JOIN (VALUES (0), (1), (2), (3), (4)) AS s
UNION ALL
SELECT '', 0, (
    SELECT count(*) FROM (
        SELECT 1 FROM tasks WHERE state = 0 AND flags >= 8 AND flags & 8 <> 0 LIMIT :at_most) AS counted), 0
UNION ALL
SELECT '', 6, (
    SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state IN (6, 8) LIMIT :at_most) AS counted), 0
ORDER BY 1, 2;

-- name: roles
SELECT id, name, max_running, max_review, paused, seen_at, provider, daily, circuit, rate, level,
       level_at, next_at
FROM roles ORDER BY name;

-- name: occupancy
SELECT coalesce(sum(CASE WHEN state IN (2, 7) THEN 1 ELSE 0 END), 0),
       coalesce(sum(CASE WHEN state = 3 THEN 1 ELSE 0 END), 0)
FROM (
    SELECT state FROM tasks WHERE role = :role AND state IN (2, 3) AND state < 5
    UNION ALL
    SELECT state FROM tasks WHERE state = 7 AND wake_at > 0 AND role = :role
) AS occupied;

-- name: ahead
SELECT count(*) FROM tasks WHERE role = :role AND state = 1 AND state < 5
  AND (priority < :priority OR (priority = :priority AND key < :key));

-- name: effect_counts
SELECT lane, count(*) FROM outbox GROUP BY lane ORDER BY lane;

-- name: effects
SELECT o.sequence, o.key, o.key || '.' || o.version || '.' || o.number, o.lane, o.payload, o.tries
FROM outbox o WHERE o.lane = :lane AND o.sequence > :after ORDER BY o.sequence LIMIT :count;

-- name: set_role
UPDATE roles SET max_running = :max_running, max_review = :max_review, paused = :paused,
    seen_at = :seen_at, provider = :provider, daily = :daily,
    circuit = :circuit, rate = :rate, level = :level, level_at = :level_at, next_at = :next_at
WHERE id = :id;

-- name: role
SELECT id, name, max_running, max_review, paused, seen_at, provider, daily, circuit, rate, level,
       level_at, next_at
FROM roles WHERE id = :role;

-- name: all_resources
SELECT name, max_held, rate, level, level_at, next_at FROM resources ORDER BY name;

-- name: set_resource
INSERT INTO resources (name, max_held, rate, level, level_at, next_at)
VALUES (:name, :max_held, :rate, :level, :level_at, :next_at)
ON CONFLICT (name) DO UPDATE SET max_held = excluded.max_held, rate = excluded.rate,
    level = excluded.level, level_at = excluded.level_at, next_at = excluded.next_at;

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
SELECT provider, open_until, reason, opened_at, opened_by, failures, probing
FROM circuits ORDER BY provider;

-- name: set_circuit
INSERT INTO circuits (provider, open_until, reason, opened_at, opened_by, failures, probing)
VALUES (:provider, :open_until, :reason, :opened_at, :opened_by, :failures, :probing)
ON CONFLICT (provider) DO UPDATE SET open_until = excluded.open_until, reason = excluded.reason,
    opened_at = excluded.opened_at, opened_by = excluded.opened_by,
    failures = excluded.failures, probing = excluded.probing;

-- name: drop_circuits
DELETE FROM circuits WHERE provider = :name;

-- name: drop_resources
DELETE FROM resources WHERE name = :name;

-- name: drop_tokens
DELETE FROM tokens WHERE id = :name;

-- name: tokens
SELECT id, name, sha256, scopes, created_at, created_by, expires_at, revoked_at, revoked_by
FROM tokens ORDER BY created_at, id;

-- name: token_of
SELECT id, name, sha256, scopes, created_at, created_by, expires_at, revoked_at, revoked_by
FROM tokens WHERE sha256 = :sha256;

-- name: set_token
INSERT INTO tokens (id, name, sha256, scopes, created_at, created_by, expires_at, revoked_at,
                    revoked_by)
VALUES (:id, :name, :sha256, :scopes, :created_at, :created_by, :expires_at, :revoked_at,
        :revoked_by)
ON CONFLICT (id) DO UPDATE SET revoked_at = excluded.revoked_at, revoked_by = excluded.revoked_by;

-- name: add_audit
INSERT INTO audit (at, who, kind, how, origin, action, subject, outcome, code, times, detail)
VALUES (:at, :who, :kind, :how, :origin, :action, :subject, :outcome, :code, :times, :detail);

-- name: audit
SELECT at, who, kind, how, origin, action, subject, outcome, code, times, detail, number FROM audit
WHERE (CAST(:before AS bigint) = 0 OR number < :before) AND at >= :since
  AND (CAST(:outcome AS text) = '' OR outcome = :outcome)
  AND (CAST(:who AS text) = '' OR who = :who)
ORDER BY number DESC LIMIT :limit;

-- name: audit_of
SELECT at, who, kind, how, origin, action, subject, outcome, code, times, detail, number FROM audit
WHERE subject = :subject AND (CAST(:before AS bigint) = 0 OR number < :before) AND at >= :since
  AND (CAST(:outcome AS text) = '' OR outcome = :outcome)
  AND (CAST(:who AS text) = '' OR who = :who)
ORDER BY number DESC LIMIT :limit;

-- name: forget_audit
DELETE FROM audit WHERE at < :audit_before;

-- Bodies are left out of listings that do not ask for them: they may be large.

-- name: hook_deliveries
SELECT way, hook, delivery_id, received_at, state, attempts, error, tasks, headers,
       CASE WHEN CAST(:with_body AS bigint) = 1 THEN body ELSE '' END, number
FROM hook_deliveries
WHERE way = :way AND (CAST(:hook AS text) = '' OR hook = :hook)
  AND (CAST(:delivery_id AS text) = '' OR delivery_id = :delivery_id)
  AND (CAST(:state AS bigint) = -1 OR state = :state)
  AND (CAST(:before AS bigint) = 0 OR number < :before)
ORDER BY number DESC LIMIT :limit;

-- name: waiting_hook_deliveries
SELECT way, hook, delivery_id, received_at, state, attempts, error, tasks, headers, body, number
FROM hook_deliveries WHERE way = :way AND state = 0 ORDER BY number LIMIT :limit;

-- name: hook_backlog
SELECT CAST(:way AS text), CAST(:hook AS text), 0, count(*), 0 FROM (
    SELECT 1 FROM hook_deliveries WHERE way = :way AND state = 0 AND hook = :hook LIMIT :at_most
) AS waiting;

-- name: hook_counts
SELECT way, hook, state, count(*), max(received_at) FROM hook_deliveries WHERE way = :way
GROUP BY way, hook, state ORDER BY hook, state;

-- name: set_hook_outcome
UPDATE hook_deliveries SET state = :state, attempts = :attempts, error = :error, tasks = :tasks
WHERE number = :number;

-- name: forget_hook_deliveries
DELETE FROM hook_deliveries WHERE state <> 0 AND received_at < :hooks_before;

-- name: webhook_targets
SELECT name, position, failures, due_at, disabled_at, sent, last_at, error FROM webhook_targets
ORDER BY name;

-- name: spending_of_day
SELECT kind, name, day, usd, tokens, turns, seconds, estimated FROM spending
WHERE kind = :kind AND name = :name AND day = :day;

-- name: spending_on
SELECT kind, name, day, usd, tokens, turns, seconds, estimated FROM spending
WHERE kind = :kind AND day = :day ORDER BY name;

-- name: spending
SELECT kind, name, day, usd, tokens, turns, seconds, estimated FROM spending
WHERE kind = :kind ORDER BY name, day;

-- name: leader_leases
SELECT name, holder, term, expires_at, body FROM terms ORDER BY name;

-- name: schedules
SELECT name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at, paused,
       problem, fired, skipped, open_tasks, note
FROM schedules ORDER BY name;

-- name: schedules_waking
SELECT name, rule, digest, since_at, next_at, wake_at, last_at, asked_at, ran_at, paused,
       problem, fired, skipped, open_tasks, note
FROM schedules WHERE wake_at > 0 ORDER BY wake_at, name LIMIT :count;

-- name: samples
SELECT span_ms, at, role, body FROM samples
WHERE (span_ms = :span_ms AND at >= :since) OR (span_ms = 0 AND at = 0 AND role = '')
ORDER BY span_ms, at, role;

-- name: forget_samples
DELETE FROM samples WHERE span_ms > 0 AND at < :samples_at - :samples_kept * span_ms;

-- What is decided about no task. Seals are listed with the first that seals more than was asked for.

-- name: system_events
SELECT number, at, kind, subject, position, data, digest FROM system_events
WHERE number > :number ORDER BY number LIMIT :at_most;

-- name: last_system_event
SELECT number, at, kind, subject, position, data, digest FROM system_events
ORDER BY number DESC LIMIT 1;

-- name: last_system_event_of
SELECT number, at, kind, subject, position, data, digest FROM system_events
WHERE kind = :kind ORDER BY number DESC LIMIT 1;

-- name: tree_extras
SELECT name, extra FROM trees ORDER BY name;

-- name: last_seal
SELECT number, at, kind, subject, position, data, digest FROM system_events
WHERE kind = 'seal' ORDER BY position DESC, number DESC LIMIT 1;

-- name: seals_between
SELECT number, at, kind, subject, position, data, digest FROM system_events
WHERE kind = 'seal' AND position >= :first AND position <= coalesce((
    SELECT min(position) FROM system_events WHERE kind = 'seal' AND position >= :last), :last)
ORDER BY position, number;

-- What stands beside tasks, for a range of their keys: what the log implies is compared with it.

-- name: addresses_between
SELECT t.key, s.id, coalesce(r.name, ''), t.priority
FROM tasks t JOIN specs s ON s.key = t.key LEFT JOIN roles r ON r.id = t.role
WHERE t.key >= :first AND t.key <= :last ORDER BY t.key;

-- name: edges_between
SELECT e.child, e.parent, coalesce(s.id, ''), coalesce(s.body, '')
FROM edges e LEFT JOIN specs s ON s.key = e.parent
WHERE e.child >= :first AND e.child <= :last ORDER BY e.child, e.parent;

-- name: dependents_between
SELECT DISTINCT parent FROM edges WHERE parent >= :first AND parent <= :last ORDER BY parent;

-- name: wants_between
SELECT key, resource FROM wants WHERE key >= :first AND key <= :last ORDER BY key, resource;

-- name: holds_between
SELECT h.key, h.resource, h.place, coalesce(k.max_held, 0)
FROM holds h LEFT JOIN resources k ON k.name = h.resource
WHERE h.key >= :first AND h.key <= :last ORDER BY h.key, h.resource, h.place;

-- name: members_between
SELECT m.key, m.root, coalesce(r.name, '')
FROM tree_members m LEFT JOIN trees r ON r.root = m.root
WHERE m.key >= :first AND m.key <= :last ORDER BY m.key, m.root;

-- name: trees_between
SELECT root, name, budget, extra, spent, used_up FROM trees
WHERE root >= :first AND root <= :last ORDER BY root;

-- name: tree_costs_between
SELECT m.root, t.memo FROM tree_members m JOIN tasks t ON t.key = m.key
WHERE m.root >= :first AND m.root <= :last ORDER BY m.root, m.key;

-- name: artifacts_between
SELECT key, epoch, name, size, sha256, media_type, at FROM artifacts
WHERE key >= :first AND key <= :last ORDER BY key, epoch, name;

-- name: outbox_between
SELECT key, version, number, lane, payload FROM outbox WHERE key >= :first AND key <= :last
ORDER BY key, version, number, lane, sequence;

-- name: dedup_between
SELECT s.key, d.name, d.digest, d.state, d.expires_at FROM specs s JOIN dedup d ON d.task_id = s.id
WHERE s.key >= :first AND s.key <= :last ORDER BY s.key, d.name;

-- name: lost_names
SELECT d.name, d.task_id FROM dedup d
WHERE (d.name LIKE 'id:%' OR d.name LIKE 'key:%')
  AND NOT EXISTS (SELECT 1 FROM specs s WHERE s.id = d.task_id)
ORDER BY d.name LIMIT :limit;

-- name: all_spending
SELECT kind, name, day, usd, tokens, turns, seconds, estimated FROM spending
ORDER BY kind, name, day;
