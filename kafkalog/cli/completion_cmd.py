"""`kafkalog completion`: the shell script that completes commands, options, paths and topics."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_KAFKALOG_COMPLETE"
"""Environment variable by which the script requests completions; click checks it before a command runs."""


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print the completion script of `kafkalog` for SHELL: bash (4.4 or newer), zsh or fish.

    bash: add `eval "$(kafkalog completion bash)"` to ~/.bashrc. zsh: add `eval "$(kafkalog completion zsh)"` to
    ~/.zshrc, after compinit. fish: run `kafkalog completion fish > ~/.config/fish/completions/kafkalog.fish`.

    Example: kafkalog completion bash
    """
    from click.shell_completion import get_completion_class

    from kafkalog.cli.main import build

    completer = get_completion_class(shell)
    assert completer is not None, shell
    print(completer(build(), {}, "kafkalog", _VARIABLE).source(), end="")
    return 0
