"""Each package that logs has one logger by its name, and docs/logging.md lists it."""

import ast
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from tests.commands import environment
from tests.trees import ROOT, SOURCES

PACKAGE = SOURCES / "kafkalog"


def loggers() -> Iterator[tuple[str, str]]:
    """Yield the place of each module-level logger, and its name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            value = getattr(node, "value", None)
            if isinstance(value, ast.Call) and ast.unparse(value.func) in ("logging.getLogger", "getLogger"):
                (name,) = value.args
                yield module, module if ast.unparse(name) == "__name__" else ast.literal_eval(name)


def test_a_logger_has_the_name_of_its_module_or_package() -> None:
    found = list(loggers())
    assert len(found) > 50
    for module, name in found:
        assert module == name or module.startswith(f"{name}."), f"{module} logs as {name}"


def test_the_document_lists_every_package_that_logs() -> None:
    text = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(kafkalog[\w.]*)` \|", text, re.MULTILINE)
    packages = {".".join(name.split(".")[:2]) for _, name in loggers()}
    folders = {name for name in packages if (PACKAGE / name.partition(".")[2]).is_dir()}
    assert sorted(listed) == sorted({"kafkalog", *folders})


def test_the_library_sets_nothing_up() -> None:
    """No handler and no level anywhere below `kafkalog`, whatever of it is imported."""
    code = (
        "import logging, kafkalog, kafkalog.server.serving, kafkalog.manager.log_manager, kafkalog.cleaner.manager\n"
        "known = logging.root.manager.loggerDict\n"
        "ours = [one for name, one in known.items() if name.split('.')[0] == 'kafkalog']\n"
        "made = [one for one in ours if isinstance(one, logging.Logger)]\n"
        "assert len(made) > 20, len(made)\n"
        "print([one.name for one in made if one.handlers or one.level or not one.propagate], logging.root.handlers)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), text=True)
    assert done.stdout == "[] []\n", done.stderr


@pytest.mark.parametrize(("level", "is_logged"), [(logging.WARNING, True), (logging.ERROR, False)])
def test_a_level_of_the_package_counts_for_its_modules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int, is_logged: bool
) -> None:
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with kafkalog.open(path, "a") as log:
        log.append([b"one"])
    with (path / "00000000000000000000.log").open("ab") as file:
        file.write(b"torn")
    (path.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with caplog.at_level(level, "kafkalog.storage"):
        kafkalog.open(path, "a").close()
    logged = [one for one in caplog.records if one.name.startswith("kafkalog.storage.") and "cut" in one.getMessage()]
    assert bool(logged) == is_logged
