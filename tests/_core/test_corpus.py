"""Every input that the coverage-guided fuzzer kept (docs/fuzzing.md): the targets accept and release it."""

import gc
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from fuzz import TARGETS

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus"
MOST_BYTES = 2 << 20


def module(target: str) -> ModuleType:
    return importlib.import_module(f"fuzz.{target}")


@pytest.mark.parametrize("target", TARGETS)
def test_replay(target: str) -> None:
    run = module(target).run
    inputs = sorted((CORPUS / target).iterdir())
    assert len(inputs) > 50
    gc.disable()  # what only the collector would release is still held
    try:
        for path in inputs:
            content = bytearray(path.read_bytes())
            try:
                run(memoryview(content))
                content.append(0)  # no view holds its bytes
            except BaseException as error:
                error.add_note(str(path))
                raise
    finally:
        gc.enable()


def test_every_target_is_here() -> None:
    found = {path.stem for path in (ROOT / "fuzz").glob("*.py") if "\ndef run(data: memoryview)" in path.read_text()}
    assert found == set(TARGETS) == {path.name for path in CORPUS.iterdir()}
    listed = re.findall(r"^\| `(\w+)` \| .* \|$", (ROOT / "docs" / "fuzzing.md").read_text(), re.MULTILINE)
    assert listed == list(TARGETS)


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < MOST_BYTES
