"""The browser with decoders: values as trees that fold, and the records of one key, before and after."""

import io
import json
from functools import partial
from pathlib import Path

import fastavro
import pytest

import kafkalog
from kafkalog.browse.decoding import decode_record
from kafkalog.browse.moves import find_same_key
from kafkalog.browse.start import BrowseOptions
from kafkalog.browse.tree import FieldLevel, Node
from kafkalog.keys.lookup import KeyLookup
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.log.typed_keywords import select_matching
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.consume.decoded import parse_serdes
from kafkalog.util.fileio import OS
from tests.browse.test_browse import Screen, browse
from tests.commands import kafkalog as command
from tests.raw_batches import batches, write_segment

ORDER = {"id": 7, "customer": {"country": "DE", "tags": ["a", "b"]}, "note": None, "paid": True, "items": []}
TREE = [
    ["value", "5 fields"], ["id", "7"], ["customer", "2 fields"], ["country", '"DE"'], ["tags", "2 items"],
    ["0", '"a"'], ["1", '"b"'], ["note", "null"], ["paid", "true"], ["items", "[]"],
]  # fmt: skip


def tree_rows(rows: list[list[str]]) -> list[list[str]]:
    """The rows from the value on, without marks and indents."""
    found = [[name.strip(" ▾▸"), text] for name, text in rows]
    return found[[name for name, _ in found].index("value") :]


def json_options() -> BrowseOptions:
    return BrowseOptions(parse_serdes(["value=json"]))


def test_a_decoded_value_is_a_tree_that_folds(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([(b"k", json.dumps(ORDER).encode()), (b"k", b"{no json"), (b"k", None), (b"k", b'"text"')])

    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter")
        assert screen.rows()[0][2].startswith('{"id":7,"customer":{"country":"DE",')
        await screen.press("enter")
        assert tree_rows(screen.rows()) == TREE
        assert screen.app.pages.ordered_columns[0].label.justify == "left"  # so that indents show
        assert screen.rows()[3][0] == "▾ value" and screen.rows()[7][0] == "    ▾ tags"
        await screen.press("down", "down", "down", "down", "down")
        assert screen.current() == ["  ▾ customer", "2 fields"]
        await screen.press("enter")
        assert screen.current() == ["  ▸ customer", "2 fields"]
        assert tree_rows(screen.rows()) == TREE[:3] + TREE[-3:]
        await screen.press("enter")
        assert tree_rows(screen.rows()) == TREE
        await screen.press("up", "enter")
        assert tree_rows(screen.rows()) == TREE  # a field without parts has nothing to open
        await screen.press("left", "down", "enter")
        found = [one for one in screen.rows() if "cannot be decoded" in one[1]]
        assert found and "it is not JSON" in found[0][1] and ["", "{no json"] in screen.rows()
        await screen.press("left", "down", "enter")
        assert ["value", "null"] in screen.rows()
        await screen.press("left", "down", "enter")
        assert ["value", "text"] in screen.rows()

    browse(tmp_path, steps, (100, 24), json_options())


def test_a_tree_of_avro_with_the_schemas_of_a_directory(tmp_path: Path) -> None:
    """Decode with `-s value=avro --schemas PLACE`; keys as well; without a decoder nothing changes."""
    schema = {
        "type": "record", "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "map", "values": "double"}}],
    }  # fmt: skip
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "3.avsc").write_text(json.dumps(schema))
    out = io.BytesIO(b"\0\0\0\0\3")
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 9, "lines": {"a": 1.5}})
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([((5).to_bytes(8), out.getvalue()), ((6).to_bytes(8), b"\0\0\0\0\x08")])
        records = [*log.records()]
    serdes = parse_serdes(["key=int64", "value=avro"], str(tmp_path / "schemas"))
    rows = [one[:2] for one in FieldLevel(None, records[0], serdes).things]
    assert rows[2:] == [
        ("key", "5"), ("▾ value", "2 fields"), ("    id", "9"), ("  ▾ lines", "1 field"), ("      a", "1.5")
    ]  # fmt: skip
    failed = FieldLevel(None, records[1], serdes).things
    assert "schema 8 is missing" in failed[3][1] and failed[4] == ("", b"\0\0\0\0\x08")
    plain = FieldLevel(None, records[0]).things
    assert plain[2:] == [("key", (5).to_bytes(8)), ("value", out.getvalue())]


def test_large_and_deep_trees_stay_small_on_the_screen() -> None:
    class Deep:
        """A record with a value of any shape."""

        offset, timestamp, is_control, headers, key = 0, 0, False, (), None

        def __init__(self, value: bytes) -> None:
            self.value = value

    wide = Deep(json.dumps({"all": list(range(150_000)), "one": 1}).encode())
    level = FieldLevel(None, wide, parse_serdes(["value=json"]))  # type: ignore[arg-type]
    assert [row[:2] for row in level.things[3:]] == [
        ("▾ value", "2 fields"), ("  ▸ all", "150,000 items"), ("    one", "1")
    ]  # fmt: skip
    node = level.things[4]
    assert isinstance(node, Node)
    level.toggle(node)
    assert 100_000 <= len(level.things) < 100_010 and "50,00" in level.things[-1][1]
    level.toggle(node)
    assert len(level.things) == 6
    text = b"[" * 900 + b"]" * 900
    deep = FieldLevel(None, Deep(text), parse_serdes(["value=json"]))  # type: ignore[arg-type]
    for _ in range(1000):
        last = [row for row in deep.things if isinstance(row, Node)][-1]
        if last.is_open:
            break
        deep.toggle(last)
    assert len(deep.things) == 3 + 900 and max(len(row[0]) for row in deep.things) < 60
    key = "\x1b[31m" + "x" * 500
    evil = FieldLevel(None, Deep(json.dumps({key: "\u202e" * 9}).encode()), parse_serdes(["value=json"]))  # type: ignore[arg-type]
    assert len(evil.things[4][0]) <= 44 and "\x1b" not in evil.things[4][0]


def keyed_log(path: Path) -> None:
    """300 records of 30 keys in three segments, then one without a key and one with a key of its own."""
    with kafkalog.open(path, "a") as log:
        for n in range(30):
            log.append([(b"k%d" % (i % 30), b'{"n": %d}' % i) for i in range(n * 10, n * 10 + 10)])
            if n % 10 == 9:
                log.roll()
        log.append([(None, b"{}"), (b"alone", b"{}")])


def test_previous_and_next_record_of_a_key(tmp_path: Path) -> None:
    keyed_log(tmp_path / "t-0")

    async def steps(screen: Screen) -> None:
        await screen.press("right_square_bracket")
        assert "select a record first" in screen.text("note")
        await screen.press("enter", "left_square_bracket")
        assert "select a record first" in screen.text("note")
        await screen.ask("o", "135")
        await screen.press("right_square_bracket")
        assert screen.current()[:2] == ["165", "k15"] and "batch 160" in screen.text("path")
        await screen.press("left_square_bracket", "left_square_bracket")
        assert screen.current()[:2] == ["105", "k15"]
        await screen.press("enter", "right_square_bracket")  # an open record stays open
        assert ["offset", "135"] in screen.rows() and tree_rows(screen.rows()) == [["value", "1 field"], ["n", "135"]]
        await screen.press(*["right_square_bracket"] * 5)
        assert ["offset", "285"] in screen.rows()
        await screen.press("right_square_bracket")
        assert screen.text("note") == "no record after offset 285 has this key" and ["offset", "285"] in screen.rows()
        await screen.ask("o", "15")
        await screen.press("left_square_bracket")
        assert screen.text("note") == "no record before offset 15 has this key"
        await screen.ask("o", "300")
        await screen.press("left_square_bracket")
        assert screen.text("note") == "this record has no key"
        await screen.ask("o", "301")
        await screen.press("left_square_bracket")
        assert screen.text("note") == "no record before offset 301 has this key"

    browse(tmp_path, steps, (100, 24), json_options())


@pytest.mark.parametrize("indexed", ["none", "beside", "store"])
def test_all_records_of_a_key_both_ways(tmp_path: Path, indexed: str) -> None:
    """With key indexes beside the segments, in a store, and without any; a search reports progress, and ends."""
    path = tmp_path / "data" / "t-0"
    keyed_log(path)
    store = tmp_path / "store" if indexed == "store" else None
    if indexed != "none":
        with kafkalog.open(path, "r" if store else "a", key_index=store or False) as log:
            assert len(log.build_key_index()) == 3
    positions: list[int] = []
    with LogView(path) as view, kafkalog.open(path) as log:
        lookup = KeyLookup(view, KeyIndexPlace(view.path, store, OS), positions.append)
        for start, forward, wanted in ((15, True, range(45, 300, 30)), (285, False, range(255, 0, -30))):
            found, at = [], start
            while (offset := find_same_key(lookup, log[at], [], forward=forward)) is not None:
                found.append(offset)
                at = offset
            assert found == [*wanted]
        assert bool([one for one in positions if one < 300]) == (indexed == "none")

        class Stop(Exception):
            """The user wants no more."""

        def stop(offset: int) -> None:
            raise Stop

        ended = KeyLookup(view, KeyIndexPlace(view.path, store, OS), stop)
        with pytest.raises(Stop):
            find_same_key(ended, log[285], [], forward=False)


def test_damage_between_records_of_a_key_is_passed_over_and_told(tmp_path: Path) -> None:
    for base in (0, 1000):
        write_segment(tmp_path / "t-0", base, batches(base, 100, 10))
    file = tmp_path / "t-0" / f"{0:020d}.log"
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k5", b"again")])
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)

    async def steps(screen: Screen) -> None:
        await screen.press("enter")
        await screen.ask("o", "5")
        await screen.press("right_square_bracket")
        assert screen.current()[0] == "2,000" and "passed over 1 damaged place" in screen.text("note")

    browse(tmp_path, steps)


def test_a_condition_looks_into_decoded_values(tmp_path: Path) -> None:
    """With the decoders of `-s`; a path that the values lack, or that needs a decoder, is reported."""
    keyed_log(tmp_path / "t-0")
    typed = {"value": "json"}
    options = json_options()._replace(select=partial(select_matching, typed))

    async def steps(screen: Screen) -> None:
        await screen.ask("slash", "value.n > 120 and value.n < 131 and key != 'k1'")
        assert screen.current()[:2] == ["122", "k2"]
        await screen.press("n")
        assert screen.current()[0] == "123"
        await screen.ask("slash", "value.n == 5.5")
        assert "not found from" in screen.text("note")
        await screen.ask("slash", "value.n like 'x'")
        assert "not found" in screen.text("note") or "needs text" in screen.text("note")
        await screen.ask("slash", "value > 5")
        assert "value is" in screen.text("note")
        await screen.ask("slash", "size > 'x'")
        assert "size is" in screen.text("note")

    browse(tmp_path, steps, (100, 24), options)

    async def without(screen: Screen) -> None:
        await screen.ask("slash", "value.n > 120")
        assert "value is bytes" in screen.text("note")

    browse(tmp_path, without)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-s", "value=jsn"], "unknown decoder 'jsn'"), (["-s", "vlue=json"], "neither key nor value"),
        (["--schemas", "x"], "give -s"), (["-s", "avro"], "needs a directory of schemas"),
    ],
)  # fmt: skip
def test_wrong_decoders_are_usage_errors(tmp_path: Path, flags: list[str], said: str) -> None:
    keyed_log(tmp_path / "t-0")
    done = command("browse", tmp_path, *flags)
    assert done.returncode == 2 and said in done.stderr.decode()


def test_help_shows_the_keys(tmp_path: Path) -> None:
    keyed_log(tmp_path / "t-0")

    async def steps(screen: Screen) -> None:
        await screen.press("question_mark", "question_mark")
        assert ["q", "quit"] in screen.rows() and any("[ and ]" in row[0] for row in screen.rows())
        assert "? keys" in screen.text("keys") and len(screen.text("keys")) <= 60
        await screen.press("left")
        assert screen.heads()[0] != "key"

    browse(tmp_path, steps)


def test_undamaged_parts_of_a_damaged_old_record(tmp_path: Path) -> None:
    """A decoder never sees a field that runs past the end of its message."""

    class Old:
        offset, timestamp, is_control, headers = 0, 0, False, ()
        key = b"k"

        @property
        def value(self) -> bytes:
            from kafkalog._core.batch.decode import DamagedField

            raise DamagedField("the value runs past the end of its message")

    key, value = decode_record(Old(), parse_serdes(["value=json"]))  # type: ignore[arg-type]
    assert key == b"k" and "runs past the end" in str(value)
