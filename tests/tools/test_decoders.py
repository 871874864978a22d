"""Decoders of keys and values, by themselves and by name."""

import json
import struct
import sys
from pathlib import Path

import pytest

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.tools.decoders import plain as decoders
from kafkalog.tools.decoders.named import decoder
from kafkalog.tools.decoders.plain import DecodeError, as_text, decode_value, pack


def test_text_and_numbers() -> None:
    assert decoders.text(b"a\xed\xa0\x80\xffb") == "a\ufffd\ufffdb"
    assert decoders.integer(b"\xff\xff\xff\xfebehind") == -2
    assert decoders.long(struct.pack(">q", -(2**63))) == -(2**63)
    assert decoders.json(b'{"a": [1, null]}') == {"a": [1, None]}
    wrong = [(decoders.json, data) for data in (b"{", b"", b"\xff", b"[" * 200_000, b"1" * 5000)]
    for decode, data in ((decoders.integer, b"abc"), (decoders.long, b"abcdefg"), *wrong):
        with pytest.raises(DecodeError):
            decode(data)


@pytest.mark.parametrize(
    ("format", "data", "text"),
    [
        ("i", b"\0\0\0\x05rest", "5"),
        ("<i$", b"\x05\0\0\0", "5"),
        ("b B", b"\xff\xff", "-1 255"),
        ("h<h>H<H", b"\0\x01\x01\0\xff\xff\xff\xff", "1165535" + "65535"),
        ("iIqQ", b"\xff" * 24, f"-1{2**32 - 1}-1{2**64 - 1}"),
        ("cc s$", "ab π".encode(), "ab  π"),
        ("s", b"", ""),
        ("$", b"", ""),
        ("c", b"\xff", "\ufffd"),
    ],
)
def test_pack_strings(format: str, data: bytes, text: str) -> None:
    """kcat's letters: `<` `>` set the order from there on, a blank is printed, `$` is the end."""
    assert pack(format)(data) == text
    assert decoder(format)(data) == text


@pytest.mark.parametrize(("format", "data"), [("i", b"abc"), ("q", b""), ("i$", b"\0\0\0\0x"), ("c", b""), ("$", b"x")])
def test_data_that_a_pack_string_does_not_fit(format: str, data: bytes) -> None:
    with pytest.raises(DecodeError):
        pack(format)(data)


@pytest.mark.parametrize("format", ["x", "i$i", "si", "i8"])
def test_letters_that_mean_nothing(format: str) -> None:
    with pytest.raises(IllegalArgument, match="pack string"):
        pack(format)


def test_names() -> None:
    for name in ("string", "text", "org.apache.kafka.tools.api.StringDecoder"):
        assert decoder(name) is decoders.text
    assert decoder("org.apache.kafka.tools.api.IntegerDecoder") is decoders.integer
    assert decoder("long") is decoder("org.apache.kafka.tools.api.LongDecoder")
    for name in ("", "no.such.Class", "kafka.serializer.StringDecoder", "strings"):
        with pytest.raises(IllegalArgument, match="unknown decoder"):
            decoder(name)


def test_functions_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_decoders.py").write_text(
        "class Box:\n    @staticmethod\n    def size(data):\n        return len(data)\n"
        "def fails(data):\n    raise KeyError('no')\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert decoder("my_decoders:Box.size")(b"four") == 4
    assert decoder("json:loads")(b"[1]") == [1]
    with pytest.raises(DecodeError, match="the key cannot be decoded: KeyError: 'no'") as caught:
        decode_value(decoder("my_decoders:fails"), b"", "key")
    assert isinstance(caught.value.__cause__, KeyError)
    for name in ("my_decoders:absent", "absent_module:f", "my_decoders:", ":f"):
        with pytest.raises(IllegalArgument, match="cannot be loaded"):
            decoder(name)
    with pytest.raises(IllegalArgument, match="is not a function"):
        decoder("my_decoders:number")
    sys.modules.pop("my_decoders", None)


def test_errors_that_are_not_about_the_bytes_stay_what_they_are() -> None:
    def broken(data: bytes) -> None:
        raise StorageError("the schema cannot be read")

    with pytest.raises(StorageError):
        decode_value(broken, b"", "value")


def test_decoded_values_as_text() -> None:
    assert [as_text(value) for value in ("a", 5, 2.5, None, True)] == ["a", "5", "2.5", "null", "true"]
    assert as_text(b"\x00\xff") == "00ff"
    assert json.loads(as_text({"a": (1, b"x")})) == {"a": [1, "eA=="]}


def test_decoders_with_schemas_need_their_directory(tmp_path: Path) -> None:
    for name in ("avro", "protobuf", "jsonschema"):
        with pytest.raises(IllegalArgument, match="directory of schemas"):
            decoder(name)
        with pytest.raises(IllegalArgument, match="schema directory does not exist"):
            decoder(name, schemas=str(tmp_path / "absent"))
