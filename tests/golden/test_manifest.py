"""The capture is whole: every archive and every list of entries is what the manifest says."""

import hashlib

import pytest

from tests import golden_cases

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("name", sorted(golden_cases.manifest().get("archives", {})))
def test_archive_is_the_one_listed(name: str) -> None:
    listed = golden_cases.manifest()["archives"][name]
    data = (golden_cases.GOLDEN / name).read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (listed["bytes"], listed["sha256"])


@pytest.mark.parametrize("case", golden_cases.cases(golden_cases.VECTORS), ids=lambda case: case.name)
def test_vector_has_the_count_listed(case: golden_cases.Case) -> None:
    assert len(golden_cases.vector(case.name)) == case.extra.get("count", -1)


@pytest.mark.parametrize("case", [c for c in golden_cases.cases() if c.archive], ids=lambda case: case.id)
def test_files_of_a_case_are_in_its_archives(case: golden_cases.Case) -> None:
    absent = [name for name in case.files if not case.path(name).is_file()]
    absent += [name for name in case.expected if not case.expected_path(name).is_file()]
    assert absent == []
