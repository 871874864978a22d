"""What the reference makes of docstrings: their examples are code, and a `>>>` is no quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*\n(?:(?!\s*$).*\n?)*", re.MULTILINE)


def fenced(text: str) -> str:
    """A docstring whose examples, each up to an empty line, are blocks of code."""
    return EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0].rstrip()}\n```\n", text + "\n").strip()


class Examples(griffe.Extension):
    """Every docstring, as it is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fences the examples."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
