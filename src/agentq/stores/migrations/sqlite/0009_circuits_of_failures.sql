-- Circuits that open because a provider fails, or because a role cannot work where its workers are.

-- How often in a row the provider did not serve, and whether one task is out as a probe.
ALTER TABLE circuits ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE circuits ADD COLUMN probing INTEGER NOT NULL DEFAULT 0;

-- Why the role needs a person, who says so and since when, as JSON; nothing if it does not.
ALTER TABLE roles ADD COLUMN circuit TEXT NOT NULL DEFAULT '';
