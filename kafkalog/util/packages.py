"""Packages that only some features need: one that is missing is an error that says how to install it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kafkalog.errors import MissingPackage


def needed(module: str, what: str, extra: str) -> Any:
    """Return a module of a package that the extra brings; MissingPackage with `what` if it cannot be imported.

    `{}` in `what` becomes the reason.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(what.format(error), hint=f"pip install 'kafkalog[{extra}]'") from None
