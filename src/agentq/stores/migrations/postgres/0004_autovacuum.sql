-- Rows that change all the time leave their old versions behind, and whoever looks for the first
-- ready task or the oldest effect walks past them. By default a table is cleaned after a fifth of
-- it has changed, in small bites with pauses: right for tables of people, late for queues.

-- One row, or a few, that every commit or claim writes again: room on the page for new versions
-- beside the old (no index is touched then), and cleaned after a thousand of them.
ALTER TABLE head SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0,
                      autovacuum_vacuum_threshold = 1000);
ALTER TABLE roles SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                       autovacuum_vacuum_threshold = 1000);
ALTER TABLE terms SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                       autovacuum_vacuum_threshold = 1000);
ALTER TABLE spending SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05,
                          autovacuum_vacuum_threshold = 1000);
ALTER TABLE trees SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05,
                       autovacuum_vacuum_threshold = 1000);

-- Queues: everything that goes in goes out again. Cleaned early, and without pauses.
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
                        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000);
ALTER TABLE holds SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Every step of a task writes its row: no pauses, or a busy ledger is never clean.
ALTER TABLE tasks SET (autovacuum_vacuum_cost_delay = 0);

-- Only ever added to. Their size is no reason to wait for a fifth more of it.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0.05,
                        autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE specs SET (autovacuum_vacuum_insert_scale_factor = 0.05,
                       autovacuum_analyze_scale_factor = 0.05);
