"""`[notify]`: what is wrong in it is named with file and key, and the rest goes on."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agentq.core.rates import Rate
from agentq.settings import read_file
from agentq.settings.addresses import hide_secrets
from agentq.settings.notify import NotifySettings, read_notify

GOOD = """
[notify]
digest = "15m"
rate = "20/1h"
quiet = "22:00-07:00"
zone = "Europe/Berlin"
severities = { dead_letter = "urgent" }

[notify.targets]
ops = "env:OPS_URL"

[notify.targets.lead]
plugin = "command"
command = ["tell", "lead"]
events = ["escalated", "blocked"]
roles = ["review-*"]
severity = "warning"
digest = "1h"
timeout = "5s"

[notify.targets.log]
plugin = "file"
path = "notices.jsonl"

[notify.targets.own]
plugin = "my-plugin"
channel = "#agents"
token = "file:token"
"""


def read(tmp_path: Path, text: str) -> NotifySettings:
    file = tmp_path / "agentq.toml"
    file.write_text(text)
    return read_notify(str(file))


def test_targets_have_rules_of_their_own_and_shared_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_URL", "slack://a-secret/token")
    (tmp_path / "token").write_text("tok-en-123\n")
    found = read(tmp_path, GOOD)
    assert (found.stated, found.problems) == (True, [])
    ops, lead, log, own = found.targets
    assert (ops.settings.plugin, ops.settings.options["url"]) == (
        "apprise", "slack://a-secret/token"
    )  # fmt: skip
    assert (ops.rules.digest, ops.rules.rate) == (900, Rate(20, 3600))
    assert ops.rules.quiet is not None
    assert ops.rules.quiet.zone == ZoneInfo("Europe/Berlin")
    assert ops.rules.severity_of("dead_letter") == "urgent"
    assert (lead.rules.events, lead.rules.roles) == (("escalated", "blocked"), ("review-*",))
    assert (lead.rules.digest, lead.settings.timeout) == (3600, 5)
    assert log.settings.options == {"path": str(tmp_path / "notices.jsonl")}
    assert own.settings.options == {"channel": "#agents", "token": "tok-en-123"}
    assert "tok-en-123" not in hide_secrets("it said tok-en-123")
    assert "a-secret" not in repr(found)
    read_file(tmp_path / "agentq.toml")  # all other commands read the same file


def test_without_a_table_nobody_is_told(tmp_path: Path) -> None:
    assert read(tmp_path, "[roles.worker]\n") == NotifySettings()
    assert read_notify("AGENTQ_URL") == NotifySettings()
    assert read_notify(str(tmp_path / "none" / "agentq.toml")) == NotifySettings()
    assert read(tmp_path, "[notify]\n") == NotifySettings(stated=True)


#: The table of one target, and what is said about it.
BAD_TARGETS = {
    "plain secret": ('url = "slack://secret"', "url of [notify.targets.bad] in FILE must not"),
    "no address": ('severity = "info"', "url of [notify.targets.bad] in FILE must be a text"),
    "unset variable": ('url = "env:NO_SUCH_VARIABLE"', "NO_SUCH_VARIABLE, which is not set"),
    "unknown key": ('plugin = "file"\npath = "x"\nevent = ["blocked"]',
                    "in FILE has an unknown setting 'event'. Did you mean events?"),
    "unknown event": ('plugin = "file"\npath = "x"\nevents = ["bloked"]',
                      "in FILE has an unknown setting 'bloked'. Did you mean blocked?"),
    "events no list": ('plugin = "file"\npath = "x"\nevents = "blocked"',
                       "events of [notify.targets.bad] in FILE must be a list of texts"),
    "severity": ('plugin = "file"\npath = "x"\nseverity = "high"',
                 "severity of [notify.targets.bad] in FILE is one of info, warning, urgent"),
    "zone": ('plugin = "file"\npath = "x"\nzone = "Mars/Base"', "no time zone: 'Mars/Base'"),
    "quiet": ('plugin = "file"\npath = "x"\nquiet = "at night"', "must be hours, got 'at night'"),
    "quiet for ever": ('plugin = "file"\npath = "x"\nquiet = "10:00-10:00"', "begins when it ends"),
    "digest": ('plugin = "file"\npath = "x"\ndigest = "soon"', "digest of [notify.targets.bad] in"),
    "rate": ('plugin = "file"\npath = "x"\nrate = "many"', "In [notify.targets.bad] in FILE: rate"),
    "timeout": ('plugin = "file"\npath = "x"\ntimeout = "2h"', "is at most 600s, got 7200s"),
    "plugin no text": ("plugin = 7", "of [notify.targets.bad] in FILE must be a text, got 7"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(BAD_TARGETS))
def test_a_bad_target_is_named_and_the_others_stay(case: str, tmp_path: Path) -> None:
    row, said = BAD_TARGETS[case]
    found = read(
        tmp_path,
        f'[notify.targets.bad]\n{row}\n[notify.targets.good]\nplugin = "file"\npath = "x"\n',
    )
    bad, good = found.targets
    assert said.replace("FILE", str(tmp_path / "agentq.toml")) in bad.settings.problem
    assert "slack" not in bad.settings.problem
    assert good.settings.problem == ""
    assert found.problems == [bad.settings.problem]


#: Of the table as a whole: rules that nobody understands count for no target.
BAD_TABLES = {
    "unknown key": ('digets = "1h"', "[notify] in FILE has an unknown setting 'digets'"),
    "severities": ("severities = {blocked = 3}", "blocked in [notify.severities] in FILE is"),
    "unknown kind": ('severities = {lunch = "info"}', "unknown setting 'lunch'"),
    "targets": ('targets = "ops"', "[notify.targets] in FILE must be a table"),
    "shared rule": ('digest = "soon"', "digest of [notify] in FILE"),
}


@pytest.mark.parametrize("case", sorted(BAD_TABLES))
def test_a_bad_table_is_named(case: str, tmp_path: Path) -> None:
    row, said = BAD_TABLES[case]
    targets = "" if "targets" in row else '[notify.targets.log]\nplugin = "file"\npath = "x"\n'
    found = read(tmp_path, f"[notify]\n{row}\n{targets}")
    assert said.replace("FILE", str(tmp_path / "agentq.toml")) in found.problems[0]
    # Its lane is kept: what waits there must not be dropped for a slip of the finger.
    assert [each.name for each in found.targets] == (["log"] if targets else [])


def test_a_name_that_no_lane_can_have_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, '[notify.targets."two words"]\nplugin = "file"\npath = "x"\n')
    assert found.targets == ()
    assert "cannot be called 'two words'" in found.problems[0]
    row = "[[notify.targets.ops]]\n"
    assert "must be a table, got a list" in read(tmp_path, row).targets[0].settings.problem


@pytest.mark.parametrize("text", ["[notify", "notify = 3", "\x00"])
def test_a_file_that_cannot_be_read_is_a_problem_and_no_error(text: str, tmp_path: Path) -> None:
    found = read(tmp_path, text)
    assert found.problem
    assert not found.stated
