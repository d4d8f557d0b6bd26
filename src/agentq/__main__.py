"""`python -m agentq` is the command `agentq`."""

from __future__ import annotations

from agentq.cli.main import main

if __name__ == "__main__":
    main()
