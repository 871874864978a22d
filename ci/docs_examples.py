"""Adapt the sources for the reference: examples become code, and a class gets the methods it takes from a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*\n(?:(?!\s*$).*\n?)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Return a docstring whose examples, each up to an empty line, are blocks of code; one already so is unchanged."""
    if "```pycon" in text:
        return text
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
