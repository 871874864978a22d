"""Every input that the coverage-guided fuzzer kept (docs/fuzzing.md): the targets take it and let go of it."""

import gc
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus"
TARGETS = (
    "scan", "decode", "legacy", "decompress", "index", "render", "validate", "verify", "columns", "append", "avro",
    "json_values", "protobuf_values", "where", "keys",
)  # fmt: skip
MOST_BYTES = 2 << 20


def module(target: str) -> ModuleType:
    return importlib.import_module(f"fuzz.{target}")


@pytest.mark.parametrize("target", TARGETS)
def test_replay(target: str) -> None:
    run = module(target).run
    inputs = sorted((CORPUS / target).iterdir())
    assert len(inputs) > 50
    gc.disable()  # what only the collector would let go of is still held
    try:
        for path in inputs:
            content = bytearray(path.read_bytes())
            try:
                run(memoryview(content))
                content.append(0)  # nobody holds its bytes
            except BaseException as error:
                error.add_note(str(path))
                raise
    finally:
        gc.enable()


def test_every_target_is_here() -> None:
    found = {path.stem for path in (ROOT / "fuzz").glob("*.py")} - {"__init__", "build", "seeds"}
    assert found == set(TARGETS) == {path.name for path in CORPUS.iterdir()}


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < MOST_BYTES
