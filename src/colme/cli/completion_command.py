"""`colme completion`: print a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of your shell.

    \b
    To enable completion permanently, add
      eval "$(colme completion bash)"              in ~/.bashrc
      eval "$(colme completion zsh)"               in ~/.zshrc
      colme completion fish | source               in ~/.config/fish/config.fish
    """
    from colme.cli import colme

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(colme, {}, "colme", "_COLME_COMPLETE").source())
