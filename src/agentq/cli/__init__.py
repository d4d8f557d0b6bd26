"""The command line: it parses words, calls the client and shows the answer. No rules of its own."""

import gc

# Modules make tens of thousands of objects that stay. To look among them for what can go, some
# forty times, takes a sixteenth of the time that a command has.
gc.set_threshold(50_000)
