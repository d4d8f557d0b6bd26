"""Pure rules: tasks, states, triggers, effects and the one function that decides."""
