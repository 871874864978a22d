"""JSON without a schema whose first thousand values have a null where later ones have something: nothing is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument
from tests.commands import ok

pytest.importorskip("kafkalog.values.json_columns")
NULLS = 1000
"""Values of a sample."""
LATER: list[Any] = [{"a": 1}, [1, 2], 5, "s", True]


def log_of(tmp_path: Path, first: bytes, *later: Any) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with kafkalog.open(folder / "events-0", "a") as log:
        log.append([first] * NULLS)
        log.append([json.dumps(one).encode() for one in later])
    return folder


def readings(folder: Path) -> dict[str, list[Any]]:
    """The values behind the sample, by each way to read them."""
    with kafkalog.open(folder / "events-0") as log:
        table = log.table(value="json")
        records = [one.value for one in log.records(value="json", start=NULLS - 1)][1:]  # the sample is null here too
        lenient = log.scan(["value"], value="json", on_undecodable="null")
        found = {"table": table["value"].to_pylist()[NULLS:], "lenient": lenient.table()["value"].to_pylist()[NULLS:]}
        assert lenient.undecodable == 0 and len(records) == len(found["table"])
    query = 'SELECT value FROM events WHERE "offset" >= 1000 ORDER BY "offset"'
    lines = ok("sql", "-d", folder, "-t", "events", "-s", "value=json", "-J", query).splitlines()
    target = folder.parent / "out"
    ok("export", "-d", folder, "-t", "events", "-s", "value=json", "--format", "jsonl", target)
    written = [line for path in target.rglob("events-*.jsonl") for line in path.read_text().splitlines()]
    return found | {
        "sql": [json.loads(line)["value"] for line in lines],
        "export": [json.loads(line)["payload"] for line in written][NULLS:],
    }


def test_a_field_that_is_null_first_is_json_text(tmp_path: Path) -> None:
    folder = log_of(tmp_path, b'{"id": 1, "x": null}', *({"id": 2, "x": one} for one in LATER))
    for way, rows in readings(folder).items():
        assert [one["id"] for one in rows] == [2] * len(LATER), way
        assert [json.loads(one["x"]) for one in rows] == LATER, way


def test_values_that_are_null_first_are_json_text(tmp_path: Path) -> None:
    folder = log_of(tmp_path, b"null", *({"x": one} for one in LATER))
    for way, rows in readings(folder).items():
        assert [json.loads(one) for one in rows] == [{"x": one} for one in LATER], way


@pytest.mark.parametrize("first", [b"null", b'{"x": null}', b'{"x": {}}', b'{"x": {"a": null}}'])
def test_paths_beside_constants_and_projections_go_into_them(tmp_path: Path, first: bytes) -> None:
    folder = log_of(tmp_path, first, {"x": {"a": 1}}, {"x": {"a": 2}})
    with kafkalog.open(folder / "events-0") as log:
        assert [one.offset for one in log.records(value="json", where="value.x.a == 2")] == [NULLS + 1]
        scan = log.scan(project=["value.x.a"], where="offset >= 1000", value="json")
        assert [json.loads(one) for one in scan.table()["value.x.a"].to_pylist()] == [1, 2]


def test_a_path_into_a_list_beside_a_constant_needs_no_type(tmp_path: Path) -> None:
    folder = log_of(tmp_path, b'{"x": null, "n": null}', {"x": [{"a": 1}], "n": 7}, {"x": {"a": 1}})
    with kafkalog.open(folder / "events-0") as log:
        for where in ("value.x[0].a == 1", "value.x[*].a == 1", "value.x[0] is not null", "value.x[-1].a in (1, null)"):
            for column in ("offset", "value"):
                scan = log.scan(["offset", column] if column == "value" else [column], where=where, value="json")
                assert scan.table()["offset"].to_pylist() == [NULLS]


def test_a_path_that_needs_the_type_asks_for_a_schema(tmp_path: Path) -> None:
    folder = log_of(tmp_path, b'{"x": null, "n": null}', {"x": [{"a": 1}], "n": 7})
    with kafkalog.open(folder / "events-0") as log:
        for asked in ({"where": "value.x[0].a == value.n"}, {"project": ["value.x[0].a"]}):
            with pytest.raises(IllegalArgument, match=r"value\.x is text.*") as error:
                log.scan(**asked, value="json")
            assert "schema" in (error.value.hint or "")
        schema = {"properties": {"x": {"type": "array", "items": {"properties": {"a": {"type": "integer"}}}}}}
        scan = log.scan(["offset"], where="value.x[0].a == 1", value="json", schema=schema)
        assert scan.table()["offset"].to_pylist() == [NULLS]
