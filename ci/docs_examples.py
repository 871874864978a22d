"""Adapt the sources for the reference: examples become code, and a class gets the methods it takes from a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

RULE = re.compile(r" \((?:(?:REC|LOG)-\d+(?:, )?)+\)")
SIGNATURE = re.compile(r"\A(\w+\(.*\))\n")
TYPE = re.compile(r"\A\w+\.\w+: .*\n*")
EXAMPLE = re.compile(r"^>>> .*\n(?:(?!\s*$).*\n?)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Return a docstring for the reference; one that already is so is unchanged.

    Examples, each up to an empty line, become blocks of code, and so does the signature that Cython puts first. The
    type that Cython puts before the text of a property is left out, and so are the numbers of rules (REC-10).
    """
    if "```pycon" in text:
        return text
    text = SIGNATURE.sub(lambda found: f"```python\n{found[1].replace('int ', '')}\n```\n", TYPE.sub("", text))
    text = RULE.sub("", text)
    return EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0].rstrip()}\n```\n", text + "\n").strip()


class Examples(griffe.Extension):
    """Every docstring, as it is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Turn the examples into blocks of code."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


class Methods(griffe.Extension):
    """Methods that a class takes from another file (`append = writing.append`), as if they were written in it."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in modules_of(pkg):
            for kind in module.classes.values():
                if not kind.is_alias:
                    take_methods(kind, pkg)


def modules_of(module: griffe.Module) -> Iterator[griffe.Module]:
    """Return `module` and all modules below it."""
    yield module
    for one in module.modules.values():
        if not one.is_alias:
            yield from modules_of(one)


def take_methods(kind: griffe.Class, pkg: griffe.Module) -> None:
    """Replace each attribute of `kind` whose value is a function of the package by that function."""
    for name, one in [*kind.attributes.items()]:
        if one.is_alias or not isinstance(one.value, griffe.ExprAttribute):
            continue
        path = one.value.canonical_path.split(".")
        try:
            function = pkg.modules_collection.get_member(path)
        except KeyError:
            continue
        if not function.is_function:
            continue
        first, *rest = function.parameters
        itself = griffe.Parameter("self", kind=first.kind)
        method = griffe.Function(
            name, parameters=griffe.Parameters(itself, *rest), returns=function.returns, lineno=one.lineno,
            endlineno=one.endlineno, docstring=function.docstring,
        )  # fmt: skip
        kind.set_member(name, method)
