"""Every command and example in README.md, CONTRIBUTING.md, examples/ and docs/ runs, and shows what the text says.

tests/documents.py has the rules; docs/spark.md and the recipe for Spark need a session and are run by tests/spark/,
docs/replication.md has three servers and is run by tests/server/replicated/, docs/tiered.md by tests/tiered/.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.documents import (
    EXAMPLES,
    ROOT,
    blocks_of,
    console_environment,
    run_command,
    run_console,
    run_document,
    run_python,
    stages_of,
    words_of,
)  # fmt: skip

DOCUMENTS = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", EXAMPLES / "README.md", *sorted((ROOT / "docs").rglob("*.md"))
]  # fmt: skip
ELSEWHERE = {
    ROOT / "docs" / "spark.md", ROOT / "docs" / "replication.md", ROOT / "docs" / "cookbook" / "spark_pipeline.md",
    ROOT / "docs" / "tiered.md",
}  # fmt: skip

MOST_PICTURE_BYTES = 80_000


@pytest.mark.parametrize(
    "document", [one for one in DOCUMENTS if one not in ELSEWHERE], ids=lambda path: str(path.relative_to(ROOT))
)
def test_examples(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(document, tmp_path, {"__name__": "__example__"})


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    """The checks above can fail: a wrong output, a failing command, a wrong doctest."""
    good, wrong, failing = blocks_of(
        "```console\n$ echo a \\\n> b\na ...\n```\n```console\n$ echo a\nb\n```\n```console\n$ false\n```\n"
    )
    run_console(good, "here", tmp_path)
    for block in (wrong, failing):
        with pytest.raises(AssertionError, match="here"):
            run_console(block, "here", tmp_path)
    for wrong_call in ("kafkalog --version\nkafkalog 0", "kafkalog consum", "kafkalog --version | false"):
        (call,) = blocks_of(f"```console\n$ {wrong_call}\n```\n")
        with pytest.raises(AssertionError, match="here"):
            run_console(call, "here", tmp_path)
    (doctested,) = blocks_of("```python\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match="Expected"):
        run_python(doctested, "here", {})


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("kafkalog ls -d data", ["kafkalog", "ls", "-d", "data"]),
        ("kafkalog ls 'a b' \\\n -q", ["kafkalog", "ls", "a b", "-q"]),
        ("""kafkalog sql "where a = 'x' and b > 1" """, ["kafkalog", "sql", "where a = 'x' and b > 1"]),
    ]
    + [(f"kafkalog ls {one}", None) for one in ("$a", "*", "a; b", "a > b", '"$a"', "a\nls", "a | b", "~", "{a,b}")],
)  # fmt: skip
def test_a_shell_runs_what_needs_one(command: str, words: list[str] | None) -> None:
    assert words_of(command) == words


@pytest.mark.parametrize(
    ("command", "stages"),
    [
        ("kafkalog ls data", ["kafkalog ls data"]),
        ("printf 'a | b' |\\\n kafkalog produce | sort", ["printf 'a | b'", "kafkalog produce", "sort"]),
        ("kafkalog verify data || true", ["kafkalog verify data"]),
    ]
    + [(one, None) for one in ("a || b", "a | head -n 1", "a; b", "a | b > c", "a &", "a |", "(a)", "a $(b)", "a\nb")],
)  # fmt: skip
def test_stages_that_can_run_one_after_the_other(command: str, stages: list[str] | None) -> None:
    assert stages_of(command) == stages


def test_a_pipeline_without_a_shell_ends_as_with_one(tmp_path: Path) -> None:
    environment = console_environment()
    for command in (
        "printf '3\n1\n2\n' | sort | tail -n 2", "false | cat", "echo a | kafkalog produce -d no/such | cat",
        "kafkalog consum | cat || true", "kafkalog --version | wc -l",
    ):  # fmt: skip
        status, output, errors = run_command(command, tmp_path, environment)
        line = ["bash", "-o", "pipefail", "-c", command]
        shell = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (status, output, errors) == (shell.returncode, shell.stdout, shell.stderr), command


def test_a_block_is_left_out_only_with_a_reason() -> None:
    with_reason = "<!-- not run: takes minutes -->\n```console\n$ false\n```\n"
    without = "<!-- not run -->\n```console\n$ false\n```\n"
    assert [b.left_out for b in blocks_of(with_reason + without)] == [True, False]


def test_every_program_of_the_examples_is_listed_and_tested() -> None:
    listed = re.findall(r"^\| \[([\w.]+)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    there = [one.name for one in EXAMPLES.iterdir() if one.name != "README.md" and not one.name.startswith(("_", "."))]
    assert sorted(listed) == sorted(there)
    for name in there:
        assert (ROOT / "tests" / "examples" / f"test_{name.split('.')[0]}.py").is_file(), name


def test_every_document_is_in_the_navigation_of_the_site() -> None:
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    there = [str(one.relative_to(ROOT / "docs")) for one in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*there, "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"])


def test_links_to_files_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} points to {target}"


def test_pictures_say_what_they_show_and_are_small() -> None:
    shown = set()
    for document in DOCUMENTS:
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
            assert len(text) > 10 and not text.endswith(".png"), f"{document.name}: {target}"
            shown.add((document.parent / target).resolve())
    there = {one.resolve() for one in (ROOT / "docs" / "images").iterdir()}
    assert shown == there
    assert [one.name for one in there if one.stat().st_size > MOST_PICTURE_BYTES] == []
