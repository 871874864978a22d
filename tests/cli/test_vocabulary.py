"""One vocabulary: an option that means the same has the same names, value and help in every command."""

from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from kafkalog.cli.main import COMMANDS


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, (module, _) in COMMANDS.items():
        found = import_module(module).command
        if isinstance(found, click.Group):
            yield from ((f"{name} {inner}", command) for inner, command in found.commands.items())
        else:
            yield name, found


OPTIONS = [
    (name, option)
    for name, command in commands()
    for option in command.params
    if isinstance(option, click.Option) and option.name != "version"
]
NAMES = {
    "dirs": {"-d", "--dir"}, "topic": {"-t", "--topic"}, "topics": {"-t", "--topic"},
    "partition": {"-p", "--partition"}, "as_json": {"-J", "--json"}, "group": {"-G", "--group"},
    "dry_run": {"--dry-run"}, "cursors": {"--cursors"}, "schemas": {"--schemas"}, "q": {"-q"}, "v": {"-v"},
    "delimiter": {"-D"}, "key_delimiter": {"-K"}, "isolation_level": {"--isolation-level"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda value: getattr(value, "name", value))
def test_the_names_of_an_option(name: str, option: click.Option) -> None:
    assert option.name is not None
    makes_topics = ("topics", "spark ingest", "spark import", "import", "table load")
    if option.name == "partitions" and not name.startswith(makes_topics):
        assert set(option.opts) == {"-p", "--partition"}
    elif option.name == "settings":
        assert "-X" in option.opts and option.metavar == "NAME=VALUE"
    elif option.name in NAMES:
        assert set(option.opts) == NAMES[option.name], name


def test_a_short_name_means_one_thing() -> None:
    """But for -c, which `topics` has from Kafka's tools (--config) and `consume` from kcat (a count), and for -o, an
    offset as in kcat, and where the page of `report` goes."""
    meant: dict[str, set[str | None]] = {}
    for name, option in OPTIONS:
        for flag in option.opts:
            if not flag.startswith("--") and flag != "-c" and (name, flag) != ("report", "-o"):
                meant.setdefault(flag, set()).add((option.name or "").rstrip("s"))
    assert {flag: found for flag, found in meant.items() if len(found) > 1} == {}


def test_what_changes_files_can_be_told_to_apply() -> None:
    """A dry run unless told: `--apply`, in `offsets reset` also by the name that Kafka's tool has for it."""
    applying = {name for name, option in OPTIONS if "--apply" in {*option.opts, *option.secondary_opts}}
    assert applying == {
        "compact", "copy", "handover", "kept remove", "offsets reset", "redact", "repair", "retain", "spark compact",
        "spark reindex", "spark retain", "topics delete",
    }  # fmt: skip


def test_every_option_is_explained_in_a_sentence() -> None:
    for name, option in OPTIONS:
        assert option.help and option.help[-1] in ".]", f"{name} {option.opts}"
