"""Hook files for tests."""

from __future__ import annotations

from pathlib import Path

SECRET = "It's a Secret to Everybody"
ISSUES = """---
description: Issues become tasks
verify: github
secret: env:HOOK_SECRET
when: payload.action == 'opened'
task:
  to: triage
  title: "Issue {{ payload.issue.number }}"
  labels: {repo: "{{ payload.repository|default('none') }}"}
---
Look at {{ payload.issue.title }}, sent as {{ headers['x-github-event'] }}.
"""


def write_hook(folder: Path, name: str, text: str) -> Path:
    """Write the file of a hook; its path."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.md"
    file.write_text(text, "utf-8")
    return file
