"""Scripts that are part of agentq, to walk the way of a task without a model.

`change` really changes a file of the workspace, a file of its own for each task, so that the work
of several tasks can be taken over one after the other.
"""

from __future__ import annotations

EXAMPLES = {
    "change": """\
steps:
  - say: "I am a stand-in: I write down what was asked for, and change nothing else."
  - write:
      path: fake-agent/{task}.md
      text: "# {prompt}\\n\\nWritten by the stand-in in attempt {attempt}.\\n"
  - result: "Wrote fake-agent/{task}.md (attempt {attempt})."
""",
    "review": """\
steps:
  - say: "I am a stand-in: I look at nothing, and like it."
  - write:
      path: .agentq-task/result.json
      text: '{"verdict": "accept", "score": 90, "notes": "The stand-in likes everything."}'
  - result: "Looks good to the stand-in, which cannot read."
""",
    "coordinate": """\
tasks:
  - prompt: "(?i)break this goal down"
    steps:
      - say: "I am a stand-in: any goal has two parts."
      - write:
          path: .agentq-task/result.json
          text: '{"parts": ["Do the first part.", "Do the second part."]}'
      - result: "Two parts."
  - prompt: "(?i)decide what that asks for"
    steps:
      - write:
          path: .agentq-task/result.json
          text: '{"title": "A request", "instructions": "Do what was asked for."}'
      - result: "Decided."
steps:
  - say: "I am a stand-in: I believe what I am told."
  - write:
      path: .agentq-task/result.json
      text: '{"reached": true, "open": []}'
  - result: "All of it is there, says the stand-in."
""",
}
