"""`agentq init`: a folder becomes an installation; run again, its settings are applied."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.init_roles import (
    NONE,
    RolePlan,
    add_roles,
    first_roles_text,
    plan_roles,
    show_roles,
)
from agentq.cli.init_template import TEMPLATES, check_runnable, show_template, write_template
from agentq.cli.limits import limits_json
from agentq.cli.options import command
from agentq.cli.screen import clean, emit_json, note, paint, say
from agentq.cli.session import Session, pass_session, refuse_memory
from agentq.core.errors import Conflict, NotFound
from agentq.core.values import replace
from agentq.private_files import FILE_MODE, hold_mode, make_folder, tighten
from agentq.settings.addresses import passwords_in, without_password

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.core.rates import Rate
    from agentq.settings import Settings
    from agentq.settings.gitignore import Ignored


@command()
@click.option(
    "--broker",
    metavar="URL",
    help="A RabbitMQ server: amqp://user:password@host/vhost, or env:NAME, file:PATH.",
)
@click.option("--artifacts", metavar="ROOT", help="A folder, or s3://bucket/prefix.")
@click.option(
    "--agent",
    metavar="NAME",
    help="The tool of the roles: claude, codex, gemini, opencode, an ACP agent; fake is a stand-in,"
    " none writes no roles.  [default: AGENTQ_AGENT, else what is installed]",
)
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    help="Also write the workflows of a way to work, and its roles: a coordinator with workers and"
    " a reviewer (trio), cards that go their way (kanban), 33 agents with their managers"
    " (organisation), or one who looks back each night (nightly).",
)
@click.option("--yes", is_flag=True, help="Write the roles that are proposed without asking.")
@pass_session
def init(
    session: Session, broker: str | None, artifacts: str | None, agent: str | None,
    template: str | None, yes: bool,
) -> None:  # fmt: skip
    """Make this folder an agentq installation.

    Writes agentq.toml unless there is one, creates the ledger and the folder for artifacts, and
    applies the limits of roles in agentq.toml. In a git repository it adds what it creates to
    .gitignore. What other users could read of it is closed to them. Doing it again is safe. --url
    puts the ledger elsewhere, for example on PostgreSQL; with AGENTQ_URL set, that ledger is made
    ready and no settings are written.

    It looks for the git repository, for agent tools and for how the project is tested, and proposes
    the roles implementation-worker and review-worker. On a terminal it shows them and asks once.
    Nothing of the project is run. An agentq.toml that is there gets them only if --agent names a
    tool, and no role of it is ever changed.

    --template writes workflows/*.md as well, and a role coordinator beside the others; organisation
    and nightly also agents/*.md, and schedules. Files that are there are never changed. With
    --agent fake all of it runs at once, and costs nothing.

    --broker prepares a RabbitMQ server: exchanges, a queue per role, one for the results of the
    coordinator, dead letters. It prints the commands that make users who may do no more than their
    part.
    """
    from agentq.wiring import local_files

    with ExitStack() as undo:  # a file of settings that lead nowhere would only be in the way
        plan = _plan(session, agent, yes=yes, template=template or "")
        check_runnable(template or "", plan)
        settings, written, advice = _settings(session, broker, artifacts, plan, undo)
        workflows = write_template(template or "", settings, plan.proposed, undo)
        plain = _make_ready(settings)
        closed = tighten(local_files(settings))
        undo.pop_all()
    plain["changed"][:0] = written
    plain["changed"] += [f"other users may not read {path} any more" for path in closed]
    kept_out = _keep_out_of_git(settings)
    plain["changed"] += kept_out.written
    if session.json:
        emit_json({**plain, **plan.as_json(), "template": workflows.as_json()})
    else:
        _print_summary(plain)
        show_roles(plan, next_steps=not template)
        show_template(workflows)
    for each in (advice, kept_out.failed):
        if each:
            note(clean(each))
    if broker and not session.json:
        note("users of the broker who may do their part and no more:")
        for line in plain["users"]:
            say(line)


def _plan(session: Session, agent: str | None, *, yes: bool, template: str) -> RolePlan:
    """Which roles will be written; none where AGENTQ_URL says that no settings are."""
    from agentq.settings import FILE_NAME

    is_new = not (Path.cwd() / FILE_NAME).is_file()
    if is_new and session.url is None and _of_environment() is not None:
        if agent and agent != NONE:
            raise Conflict(
                f"AGENTQ_URL names the ledger, so no {FILE_NAME} is written that could hold roles."
                " Nothing was changed.",
                "Unset AGENTQ_URL, or leave --agent out.",
            )
        return RolePlan()
    return plan_roles(session, agent, yes=yes, new_file=is_new, template=template)


def _keep_out_of_git(settings: Settings) -> Ignored:
    """Name what was made here in .gitignore, where this folder is in a repository."""
    from agentq.organisation.dashboard import FILE_NAME as DASHBOARD
    from agentq.settings import FILE_NAME, MEMORY
    from agentq.settings.gitignore import ignore
    from agentq.settings.references import plain_secrets
    from agentq.wiring import local_files

    here = Path.cwd()
    made = [Path(settings.home)]
    if not settings.remote_artifacts:
        made.append(Path(settings.artifacts_root))
    if settings.url.startswith("sqlite:") and settings.sqlite_path != MEMORY:
        made.append(Path(settings.sqlite_path))
    made = [path for path in made if path.exists()]
    if here in made:  # among other things: what agentq will put there is named one by one
        made = [*(each for each in made if each != here), *map(Path, local_files(settings))]
    top = [path for path in made if not any(other in path.parents for other in made)]
    made = [*top, here / f"{FILE_NAME}.before-move"]
    if (here / DASHBOARD).is_file():
        made.append(here / DASHBOARD)  # written anew all the time, and brought into workspaces
    file = here / FILE_NAME
    if file.is_file() and plain_secrets(file):
        made.append(file)
    return ignore(here, made)


def _make_ready(settings: Settings) -> dict[str, Any]:
    """Create what is missing; return the answer of the command, as JSON."""
    from agentq.client.client import Client
    from agentq.client.principals import principal_of
    from agentq.core.access import Action, Relation, check
    from agentq.settings.profiles import all_roles
    from agentq.wiring import ledger_id_of, open_installation

    who = principal_of(settings, lambda: ledger_id_of(settings))
    check(who, Action.OPERATE, Relation.NONE)
    make_folder(settings.home)
    with Client(open_installation(settings, create=True)) as queue:
        changed = _apply_limits(queue, settings)
        broker: dict[str, object] = {}
        if settings.broker:
            roles = sorted({*all_roles(settings), *queue.limits()})
            changed += queue.prepare_broker(roles)
            users = queue.installation.broker_users(roles)
            broker = {"broker": without_password(settings.broker), "users": users}
        return {
            "url": without_password(settings.url),
            "artifacts_root": settings.artifacts_root,
            "settings": settings.source,
            "schema": queue.installation.schema_version(),
            "changed": changed,
            "roles": {role: limits_json(each) for role, each in sorted(queue.limits().items())},
            **broker,
        }


def _print_summary(plain: dict[str, Any]) -> None:
    good = paint("✓", "green")
    say(f"{good} ledger     {plain['url']} (schema {plain['schema']})")
    say(f"{good} artifacts  {plain['artifacts_root']}")
    if "broker" in plain:
        say(f"{good} broker     {plain['broker']}")
    say(f"{good} settings   {plain['settings']}")
    for each in plain["changed"] or ["nothing to change"]:
        say(f"  {each}")


def _settings(
    session: Session, broker: str | None, artifacts: str | None, plan: RolePlan, undo: ExitStack
) -> tuple[Settings, list[str], str]:
    """The settings that hold here from now on, what was written for that (`undo` takes it back),
    and advice for what is left to do."""
    from agentq.settings import FILE_NAME, read_file, resolve_broker

    meant = resolve_broker(broker, "--broker") if broker else ""
    file = Path.cwd() / FILE_NAME
    written: list[str] = []
    if file.is_file():
        _check_same(session, file, read_file(file), artifacts)
        if broker and _add_broker(file, broker, undo):
            written = [f"{FILE_NAME} names the broker now"]
        written += add_roles(file, plan, undo)
    elif session.url is None and (given := _of_environment()) is not None:
        return _with_environment(given, meant, artifacts)
    else:
        text, private = _first_text(session, broker, artifacts, plan)
        file.touch(mode=0o600 if private else 0o644, exist_ok=False)
        undo.callback(file.unlink)
        hold_mode(file, FILE_MODE)
        file.write_text(text, "utf-8")
        written = [f"{FILE_NAME} written"]
    settings = read_file(file)
    refuse_memory(settings)
    _check_counts(settings, meant)
    return settings, written, _about_passwords(file)


def _about_passwords(file: Path) -> str:
    """Advice about passwords that stand in the settings; none if none does."""
    from agentq.settings.references import BY_REFERENCE, plain_secrets

    found = plain_secrets(file)
    if not found:
        return ""
    return f"{file.name} holds a password in plain text ({', '.join(found)}): {BY_REFERENCE}"


def _of_environment() -> Settings | None:
    from agentq.settings import load_settings

    try:
        settings = load_settings()
    except NotFound:
        return None
    return settings if settings.source == "AGENTQ_URL" else None


def _with_environment(
    settings: Settings, broker: str | None, artifacts: str | None
) -> tuple[Settings, list[str], str]:
    """AGENTQ_URL names the ledger, so there is no file to write the rest into."""
    refuse_memory(settings)
    if artifacts and artifacts != settings.artifacts_root:
        raise Conflict(
            f"AGENTQ_URL names the ledger, and artifacts are in {settings.artifacts_root} then."
            " Nothing was changed.",
            "Set AGENTQ_ARTIFACTS_ROOT, here and wherever agentq runs.",
        )
    if not broker or settings.broker == broker:
        return settings, [], ""
    if settings.broker:
        _check_counts(settings, broker)
    advice = (
        "no file was written, as AGENTQ_URL is set: set AGENTQ_BROKER to this broker"
        " wherever agentq runs, or none of them will know of it"
    )
    return replace(settings, broker=broker), [], advice


def _check_counts(settings: Settings, broker: str | None) -> None:
    """What is asked for must be what all others will use."""
    if broker and settings.broker != broker:
        raise Conflict(
            f"AGENTQ_BROKER names the broker {without_password(settings.broker)}, and counts"
            " before everything else. Nothing was changed.",
            "Set it to the broker that is meant, or unset it.",
        )


def _first_text(
    session: Session, broker: str | None, artifacts: str | None, plan: RolePlan
) -> tuple[str, bool]:
    """What a new agentq.toml says, and whether it holds a password."""
    from agentq.settings.first_file import TEMPLATE

    url, root = "sqlite:///.agentq/ledger.db", ".agentq"
    if session.url is not None:
        named = session.settings()
        # The same folder that others find who know only the URL.
        url, root = named.url_written or named.url, named.artifacts_root
    text = TEMPLATE.format(url=_toml(url), root=_toml(artifacts or root))
    text += f'\n[broker]\nurl = "{_toml(broker)}"\n' if broker else ""
    text += first_roles_text(plan)
    # A user's name is a sign that a password is near, or will be.
    return text, any("@" in each or passwords_in(each) for each in (url, broker or ""))


def _check_same(session: Session, file: Path, settings: Settings, artifacts: str | None) -> None:
    from agentq.settings import FILE_NAME, load_settings

    if session.url is not None and load_settings(session.url).url != settings.url:
        raise Conflict(
            f"{file} names the ledger {without_password(settings.url)} already. Nothing was"
            " changed.",
            f"Edit {FILE_NAME} if this installation should move to another ledger.",
        )
    if artifacts and artifacts != settings.artifacts_root:
        raise Conflict(
            f"{file} keeps artifacts in {settings.artifacts_root} already. Nothing was changed.",
            "`agentq move` takes an installation with all its files elsewhere.",
        )


def _add_broker(file: Path, broker: str, undo: ExitStack) -> bool:
    """Add the broker to the file; False if it was there."""
    import tomllib

    from agentq.settings import resolve_broker
    from agentq.settings.editing import with_values

    before, mode = file.read_text("utf-8"), file.stat().st_mode
    known = tomllib.loads(before).get("broker", {}).get("url")
    if known and resolve_broker(known, "[broker]") == resolve_broker(broker, "--broker"):
        return False
    if known:
        raise Conflict(
            f"{file} names the broker {without_password(known)} already. Nothing was changed.",
            "Edit [broker] in it if this installation should use another.",
        )
    text = with_values(before, "broker", {"url": broker})
    if "@" in broker:
        file.chmod(0o600)
        undo.callback(file.chmod, mode)
    undo.callback(file.write_text, before, "utf-8")
    file.write_text(text, "utf-8")
    return True


def _toml(text: str) -> str:
    """A text as it stands between the quotes of a TOML string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _rate_change(before: Rate, after: Rate) -> str:
    return "" if before == after else f", rate {before} → {after}"


def _apply_limits(queue: Client, settings: Settings) -> list[str]:
    from agentq.core.limits import NO_LIMITS

    known = queue.limits()
    changed, met = [], []
    for role, written in settings.roles.items():
        held = known.get(role, NO_LIMITS)
        wanted = replace(written, paused=held.paused)  # pausing is not a setting but an act
        if wanted != held or role not in known:
            queue.set_limits(role, wanted)
            if wanted == held:
                met.append(role)
                continue
            changed.append(
                f"limits of {role}: running {held.max_running or 'any'} →"
                f" {wanted.max_running or 'any'}, review {held.max_review or 'any'} →"
                f" {wanted.max_review or 'any'}{_rate_change(held.rate, wanted.rate)}"
            )
    keys = queue.key_limits(list(settings.keys)) if settings.keys else {}
    for key, limits in settings.keys.items():
        before = keys[key].limits
        if limits != before:
            queue.set_key_limits(key, limits)
            changed.append(
                f"limits of {key}: max {before.max_held} → {limits.max_held},"
                f" rate {before.rate} → {limits.rate}"
            )
    if met:
        changed.append(f"the ledger knows {' and '.join(met)} now")
    return changed
