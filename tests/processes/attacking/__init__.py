"""An agent that attacks: the ways it tries, and what it finds in its workspace to try them with.

Each way is a function that answers whether it got through. The tests read the same table that the
agent runs (`python -m tests.processes.attacking`, in an attempt whose task is named for a way).
"""
