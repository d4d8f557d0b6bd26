"""`agentq fake-agent`: a deterministic stand-in for an agent tool, for rehearsals at no cost."""

from __future__ import annotations

import click

from agentq.testing.fake_agent.examples import EXAMPLES
from agentq.testing.fake_agent.program import DIALECTS


class _Passing(click.Command):
    """Leaves every word that is not its own for the tool that it plays, `--` included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, rest = args, []
        if "--" in args:
            place = args.index("--")
            own, rest = args[:place], args[place:]
        left = super().parse_args(ctx, own)
        ctx.params["words"] = (*ctx.params["words"], *rest)
        return left


@click.command(
    "fake-agent",
    cls=_Passing,
    # No -h: a tool's own short flags may hold that letter.
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
@click.option(
    "--script", metavar="FILE", help="What to play: a YAML file.  [default: a short answer]"
)
@click.option(
    "--example",
    type=click.Choice(list(EXAMPLES)),
    help="Play a script of agentq's own: change a file, or review.",
)
@click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    default="command",
    show_default=True,
    help="The tool whose output it imitates.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def fake_agent(
    script: str | None, example: str | None, dialect: str, words: tuple[str, ...]
) -> int:
    """Play an agent tool from a script, at no cost.

    WORDS are the arguments of the real tool: it takes the prompt and the session from them (the
    prompt also from standard input) and skips the others; --json and --url, too, are left to that
    tool. The same script and prompt give the same output, byte by byte.

    \b
    A script:
      steps:
        - say: Let me look at it.
        - work: 10s
        - write: {path: out.txt, text: hello}
        - spend: {usd: 0.25, tokens: 12000}
        - result: All done.

    \b
    Steps:
      say think work write artifact commit spend result ask-permission
      exit ask fail quota refuse unknown-session
      hang hang-after-done crash flood repeat fork-orphans ignore-sigterm bad-output

    `tasks:` instead of `steps:` holds several sections, each with `attempt:` (a number) or
    `prompt:` (a regular expression); the first that fits is played.
    """
    from agentq.settings import environment
    from agentq.testing.fake_agent.program import run

    if script is not None and example is not None:
        raise click.UsageError("--script and --example both say what to play; give one of them.")
    return run(script, dialect, words, environment(), example=example or "")
