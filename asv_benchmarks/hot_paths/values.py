"""Values decoded to Arrow columns, and a condition on a path into them."""

import json
from collections.abc import Iterator

from asv_benchmarks.hot_paths.path import Place, Work, hot_path

COUNT = 2_000


@hot_path("values", "Avro values to Arrow columns", item="value")
def avro(place: Place) -> Iterator[Work]:
    import pyarrow as pa

    from asv_benchmarks.typed import ORDER, avro_values
    from kafkalog import values

    column = pa.array(avro_values(COUNT), pa.binary())
    decoder = values.decoder("avro", schema=ORDER)
    yield Work(lambda: len(decoder.decode(column).values))


@hot_path("values", "JSON values to Arrow columns", item="value")
def documents(place: Place) -> Iterator[Work]:
    import pyarrow as pa

    from kafkalog import values

    column = pa.array([_order(number) for number in range(COUNT)], pa.binary())
    decoder = values.decoder("json", fields={"id": "int64", "customer": "string", "total": "double"})
    yield Work(lambda: len(decoder.decode(column).values))


def _order(number: int) -> bytes:
    return json.dumps({"id": number, "customer": f"customer-{number:08}", "total": number * 1.5, "paid": True}).encode()


@hot_path("values", "condition on a path into JSON", item="record")
def condition(place: Place) -> Iterator[Work]:
    import kafkalog

    with kafkalog.open(place.directory / "hot-0", "a") as log:
        for start in range(0, COUNT, 100):
            log.append([_order(number) for number in range(start, start + 100)])
        yield Work(lambda: 2 * log.scan(["offset"], where="value.total >= 1500", value="json").table().num_rows)
