"""Text made of untrusted bytes: the dump tool's lines, consume's templates, and the decoders of internal records."""

from kafkalog._core.text import render, template
from kafkalog._core.text.text_buffer import java_text
from kafkalog.errors import KafkalogError
from kafkalog.records.compression import new_unpacker
from kafkalog.tools.dump import record_readers
from kafkalog.tools.dump.control_text import control_text
from kafkalog.tools.dump.log_text import line_end
from kafkalog.tools.render_errors import refused_error

SEALS = True
UNPACKER = new_unpacker()
DECODED_LIMIT_BYTES = 1 << 20
KINDS = (template.VALUE, template.KEY, template.OFFSET, template.TIMESTAMP, template.TIMESTAMP_TYPE,
         template.VALUE_SIZE, template.KEY_SIZE, template.VALUE_SIZE_32, template.HEADERS, template.VALUE_BASE64,
         template.KEY_BASE64, template.VALUE_HEX, template.KEY_HEX, template.JSON_VALUE, template.JSON_KEY,
         template.JSON_HEADERS)  # fmt: skip
PIECES = [(kind, b"NULL") for kind in KINDS]
READERS = (
    record_readers.offsets_reader(), record_readers.transaction_log_reader(), record_readers.share_state_reader(),
    record_readers.cluster_metadata_reader(), record_readers.remote_log_metadata_reader(),
)  # fmt: skip


def run(data: memoryview) -> None:
    """One of the renderers, by the lowest bits of the offset, comes to an end."""
    kind = data[7] % 8 if len(data) >= 26 else 7
    if kind < 2:
        dump(data, None, 1 << 18 if kind else 1)
    elif kind < 4:
        dump(data, READERS[data[-1] % len(READERS)], 1 << 18)
    elif kind < 6:
        consume(data, 1 << 18 if kind % 2 else 0)
    else:
        fields(bytes(data))


def fields(data: bytes) -> None:
    """Key and value of one record, by all that turn them into text."""
    cut = min(len(data), 12)
    java_text(data).decode()
    try:
        control_text(bytes((0, 0, 0, 2 + cut % 5)), data[cut:])
        line_end(*READERS[cut and data[0] % len(READERS)](data[1:cut], data[cut:], 5), "|")
    except KafkalogError:
        return


def dump(data: memoryview, reader: record_readers.RecordReader | None, limit: int) -> None:
    """All lines of the dump tool, with what it asks for given to it."""
    text = render.DumpText(
        deep=True, data=True, ask=reader is not None, limit=limit, unpacker=UNPACKER, decoded_limit=DECODED_LIMIT_BYTES
    )
    start, steps = 0, 0
    while True:
        status = text.render(data, start, len(data), 0)
        start = text.position
        steps += 1
        assert steps <= 4 * len(data) + 4 and 0 <= start <= len(data)
        try:
            if status == render.NEEDS_TEXT:
                text.give(words(text, reader).encode(errors="replace"))
            elif text.is_refused:
                assert isinstance(refused_error(status, text, "f.log", 0), KafkalogError)
                return
            elif status != render.IS_FULL:
                return
        except KafkalogError:
            return
        if len(text.text) > 1 << 20:
            return


def words(text: render.DumpText, reader: record_readers.RecordReader | None) -> str:
    """Return the words that the renderer needs for one record."""
    if text.is_control:
        return control_text(text.key, text.value)
    assert reader is not None
    return line_end(*reader(text.key, text.value, text.record_offset), "")


def consume(data: memoryview, limit: int) -> None:
    """Every kind of piece that a template may hold."""
    text = template.TemplateText(PIECES, check_crc=limit == 0, limit=limit)
    start, steps = 0, 0
    while text.render(data, start, len(data)) == template.IS_FULL:
        steps += 1
        assert steps <= len(data) + 1
        start = text.position
        text.text.clear()
    assert 0 <= text.position <= len(data)
