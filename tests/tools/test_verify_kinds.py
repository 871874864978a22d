"""The kinds of findings are one list, which the documentation explains."""

import re

import pytest

from kafkalog.tools.verify.report import KINDS, Findings, Severity
from tests.trees import ROOT


def documented_kinds() -> set[str]:
    """The kinds in the first column of the table in docs/verify.md."""
    text = (ROOT / "docs" / "verify.md").read_text()
    rows = text.partition("| kind | what was found |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    return {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row.split("|")[1])}


def test_the_documentation_explains_each_kind() -> None:
    assert documented_kinds() == KINDS


def test_a_finding_of_an_unlisted_kind_is_a_fault() -> None:
    findings = Findings("a file")
    with pytest.raises(AssertionError, match="odd"):
        findings.add(Severity.NOTE, "odd", "what")
    for kind in KINDS:
        findings.add(Severity.NOTE, kind, "what")
    assert {one.kind for one in findings.all()} == KINDS
