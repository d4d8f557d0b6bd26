"""The words after `fake-agent`: read as each tool reads its own, as far as it matters here.

What matters is the prompt, the session to go on from, and the form of the output. Every other flag
of the real tool is skipped, with its value where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Flags that take the next word with them; `--flag=value` needs no entry.
_WITH_VALUE = {
    "claude": (
        "--output-format --input-format --max-turns --max-budget-usd --resume -r --session-id"
        " --permission-mode --permission-prompt-tool --allowedTools --allowed-tools"
        " --disallowedTools --disallowed-tools --tools --mcp-config --json-schema --model"
        " --fallback-model --append-system-prompt --append-system-prompt-file --system-prompt"
        " --system-prompt-file --add-dir --settings --setting-sources --agents --agent --effort"
        " --plugin-dir --betas --debug-file"
    ),
    "codex": (
        "-C --cd -s --sandbox -m --model -c --config -p --profile -o --output-last-message"
        " --output-schema -i --image --color -a --ask-for-approval --add-dir --enable --disable"
        " --local-provider"
    ),
    "gemini": (
        "-p --prompt -i --prompt-interactive --output-format -o -m --model --approval-mode"
        " --resume -r --allowed-tools --allowed-mcp-server-names --include-directories"
        " --extensions -e --policy --admin-policy --session-id"
    ),
    "opencode": (
        "--format -s --session -m --model --agent --attach --file -f --title --port --variant"
        " --dir --command --log-level"
    ),
}
#: The flags that name the session, and the words that are commands of the tool itself.
_SESSION_FLAGS = {
    "claude": ("--resume", "-r"),
    "gemini": ("--resume", "-r"),
    "opencode": ("--session", "-s"),
}
_COMMANDS = {"codex": ("exec", "e"), "opencode": ("run",)}
_PROMPT_FLAGS = {"gemini": ("-p", "--prompt", "-i", "--prompt-interactive")}
#: In other dialects a resumed session and a prompt are told the plain way.
_PLAIN_WITH_VALUE = "--resume --session --prompt"


@dataclass(frozen=True, slots=True)
class Arguments:
    prompt: str = ""
    session: str = ""
    #: A session id that is asked for a new session.
    new_session: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    reads_stdin: bool = False

    @property
    def only_result(self) -> bool:
        """One object at the end instead of a stream of events."""
        return self.flags.get("--output-format", self.flags.get("-o", "")) == "json"


def read_words(dialect: str, argv: Sequence[str]) -> Arguments:
    flags, rest = _sorted_out(argv, _WITH_VALUE.get(dialect, _PLAIN_WITH_VALUE).split())
    commands = _COMMANDS.get(dialect, ())
    if rest and rest[0] in commands:
        del rest[0]
    session = _first(flags, _SESSION_FLAGS.get(dialect, ("--resume", "--session")))
    if dialect == "codex" and rest and rest[0] == "resume":
        del rest[0]
        if "--last" in flags:
            session = "last"
        elif rest:
            session = rest.pop(0)
    asked = _first(flags, _PROMPT_FLAGS.get(dialect, ("--prompt",)))
    prompt = " ".join(([asked] if asked else []) + rest)
    return Arguments(
        prompt="" if prompt == "-" else prompt,
        session=session,
        new_session=flags.get("--session-id", ""),
        flags=flags,
        # Gemini adds its words to what comes on standard input; the others read one or the other.
        reads_stdin=prompt in ("", "-") or dialect == "gemini",
    )


def _sorted_out(argv: Sequence[str], with_value: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Flags with their values ("" for those without), and what is left."""
    flags: dict[str, str] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            return flags, rest + words
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif "=" in word and word.startswith("--"):
            name, _, value = word.partition("=")
            flags[name] = value
        else:
            flags[word] = words.pop(0) if word in with_value and words else ""
    return flags, rest


def _first(flags: Mapping[str, str], names: Sequence[str]) -> str:
    return next((flags[name] for name in names if flags.get(name)), "")
