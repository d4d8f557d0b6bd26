-- Tasks on which somebody was mentioned who has not said anything there since (bit 16 of flags).
CREATE INDEX tasks_mentioned ON tasks (key) WHERE flags >= 16;
