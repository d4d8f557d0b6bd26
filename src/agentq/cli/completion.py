"""`agentq completion`: what a shell needs to complete commands, options, roles and task ids."""

from __future__ import annotations

import click

from agentq.cli.options import command
from agentq.cli.screen import say


@command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  agentq completion bash > ~/.local/share/bash-completion/completions/agentq
    zsh:   agentq completion zsh > "${fpath[1]}/_agentq"
    fish:  agentq completion fish > ~/.config/fish/completions/agentq.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(ctx.find_root().command, {}, "agentq", "_AGENTQ_COMPLETE").source())
