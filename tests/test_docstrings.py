"""Every public function, method and property is shown by an example in a docstring, and the examples do what they say.

What is public is what the pages of the API reference name. An example has `kafkalog` imported, its module's names, and,
where it uses them, what `GIVEN` makes: a log `orders-0` with two records, opened for writing, among others.
"""

import dataclasses
import doctest
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kafkalog
from tests.trees import SOURCES

REFERENCE = SOURCES / "docs" / "reference"
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
NEEDS = {
    "kafkalog.Log": ("matplotlib", "pandas"),
    "kafkalog.LogSlice": ("pandas",),
    "kafkalog.decoders.avro": ("fastavro",),
    "kafkalog.decoders.protobuf": ("google.protobuf",),
    "kafkalog.exchange.export.export_records": ("pyarrow",),
    "kafkalog.exchange.import_.import_records": ("pyarrow",),
    "kafkalog.values.ValueDecoder": ("pyarrow",),
    "kafkalog.values.avro.AvroDecoder": ("pyarrow",),
    "kafkalog.values.decoder": ("pyarrow",),
    "kafkalog.values.json_columns.JsonDecoder": ("pyarrow",),
    "kafkalog.values.protobuf.ProtobufDecoder": ("google.protobuf", "pyarrow"),
    "kafkalog.values.internal.InternalDecoder": ("pyarrow",),
}
TAKES_THE_TERMINAL = {".browse"}
STARTS_NODES = ("kafkalog.testing.", "kafkalog.queue.connect")
pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason="needs the documents")


def given_log(stack: ExitStack) -> kafkalog.Log:
    log = stack.enter_context(kafkalog.open("data/orders-0", "a"))
    log.append([(b"u-1", b"first"), (b"u-2", b"second")])
    return log


GIVEN: dict[str, Callable[[ExitStack], Any]] = {
    "log": given_log,
    "dirs": lambda stack: stack.enter_context(kafkalog.open_dirs("disk", mode="a")),
}


def resolve_name(name: str) -> Any:
    """The object that a dotted name stands for."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[count:], found)
    raise AssertionError(f"nothing is called {name}")


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield the names in the reference, and those that its modules offer; the raising functions document errors."""
    for page in sorted(REFERENCE.glob("*.md")):
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE):
            found = resolve_name(name)
            things = {name: found}
            if inspect.ismodule(found):
                things = {f"{name}.{one}": getattr(found, one) for one in getattr(found, "__all__", ())}
            yield from (one for one in things.items() if inspect.isclass(one[1]) or inspect.isroutine(one[1]))


OBJECTS = {
    name: thing
    for name, thing in public_objects()
    if not (inspect.isclass(thing) and issubclass(thing, Exception))
}
CLASSES = {name: thing for name, thing in OBJECTS.items() if inspect.isclass(thing)}


def public_members(kind: type) -> dict[str, str]:
    """The public methods and properties that our own classes give `kind`, with their docstrings; a value has none."""
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or issubclass(kind, int):
        return {}
    ours = [one for one in kind.__mro__ if one.__module__.startswith("kafkalog")]
    names = {name for one in ours for name in vars(one) if not name.startswith("_")}
    names -= {key.attribute for key in kind.TABLE.keys} if hasattr(kind, "TABLE") else set()  # settings are values
    return {name: inspect.getdoc(getattr(kind, name)) or "" for name in sorted(names)}


def examples_of(text: str) -> str:
    return "".join(one.source for one in doctest.DocTestParser().get_examples(text))


def docstrings(thing: Any) -> dict[str, str]:
    own = {"": inspect.getdoc(thing) or ""}
    return own | {f".{name}": text for name, text in public_members(thing).items()} if inspect.isclass(thing) else own


@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_public_has_an_example(name: str) -> None:
    thing = OBJECTS[name]
    texts = docstrings(thing)
    examples = "".join(map(examples_of, texts.values()))
    module, _, own = name.rpartition(".")
    around = resolve_name(module)
    if not examples and inspect.ismodule(around) and re.search(rf"\b{own}\b", examples_of(around.__doc__ or "")):
        return  # a page of one module, whose examples are its own
    assert examples or hasattr(thing, "_fields"), f"{name} has no example"
    unshown = [one for one in texts.keys() - TAKES_THE_TERMINAL if one and not re.search(rf"\{one}\b", examples)]
    assert not unshown, f"no example of {name} shows {', '.join(sorted(unshown))}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name.startswith(STARTS_NODES) else name for name in OBJECTS]
)
def test_examples_do_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    for number, (member, text) in enumerate(docstrings(OBJECTS[name]).items()):
        source = examples_of(text)
        if not source:
            continue
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        module = inspect.getmodule(OBJECTS[name])
        assert isinstance(module, ModuleType)
        with ExitStack() as stack:
            given = {one: make(stack) for one, make in GIVEN.items() if re.search(rf"\b{one}\b", source)}
            names = {**vars(module), "kafkalog": kafkalog, **given}
            test = doctest.DocTestParser().get_doctest(text, names, name + member, None, None)
            output: list[str] = []
            result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=output.append)
        assert not result.failed, "".join(output)
        assert "+SKIP" not in source
