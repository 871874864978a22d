"""confluent-kafka's registry client and its serializers for Avro, JSON Schema and Protobuf."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")
for name in ("confluent_kafka", "fastavro", "google.protobuf"):
    pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)
if importlib.util.find_spec("jsonschema") is None:  # its import takes a second, of each process that collects
    pytest.skip("jsonschema is not installed", allow_module_level=True)

from kafkalog import values  # noqa: E402
from kafkalog.testing import KafkaServer, kafka_server  # noqa: E402
from tests.server.registry.calls import record  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*authlib.*", "ignore:.*httpx.*")
FILE = """
name: "shop/order.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Order"
  field {name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64}
  field {name: "at" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"}
}
"""

WITH_OPTIONS = """
name: "shop/option.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/descriptor.proto" dependency: "confluent/meta.proto"
dependency: "confluent/type/decimal.proto"
message_type {
  name: "Item"
  field {name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64}
  field {name: "price" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".confluent.type.Decimal"}
}
extension {
  name: "is_private" number: 50000 label: LABEL_OPTIONAL type: TYPE_BOOL extendee: ".google.protobuf.FieldOptions"
}
"""


@pytest.fixture(scope="module", autouse=True)
def _registry_client() -> None:
    """Import it where the tests run: it takes seconds, and every process collects all tests."""
    name = "confluent_kafka.schema_registry"
    pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(registry=True) as found:
        yield found


@pytest.fixture
def client(server: KafkaServer) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": server.registry_url})


def context(topic: str) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


def test_avro(server: KafkaServer, client: Any) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    old, new = record(id="long"), record(id="long", paid=("boolean", False))
    data = AvroSerializer(client, json.dumps(old))({"id": 7}, context("orders"))
    assert AvroDeserializer(client)(data, context("orders")) == {"id": 7}
    assert AvroDeserializer(client, json.dumps(new))(data, context("orders")) == {"id": 7, "paid": False}
    pa = pytest.importorskip("pyarrow")
    found = values.decoder("avro", schemas=server.directory, subject="orders-value").decode(pa.array([data]))
    assert found.values.to_pylist() == [{"id": 7}]


def test_json(client: Any) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    schema = json.dumps({"title": "T", "type": "object", "properties": {"id": {"type": "integer"}}})
    data = JSONSerializer(schema, client)({"id": 7}, context("texts"))
    assert JSONDeserializer(None, schema_registry_client=client)(data, context("texts")) == {"id": 7}


def test_protobuf(server: KafkaServer, client: Any) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    pool.Add(stamp)
    pool.Add(text_format.Parse(FILE, descriptor_pb2.FileDescriptorProto()))
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(order, client, settings)(order(id=7), context("messages"))
    assert ProtobufDeserializer(order, settings, client)(data, context("messages")).id == 7
    assert client.get_latest_version("messages-value").schema.schema_type == "PROTOBUF"
    pa = pytest.importorskip("pyarrow")
    found = values.decoder("protobuf", schemas=server.registry_url).decode(pa.array([data]))
    assert found.values.to_pylist()[0]["id"] == 7


def test_protobuf_with_options_of_its_own(client: Any) -> None:
    """The client sends no reference for Google's files, among them the one that options extend, and Confluent's."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    for module in (descriptor_pb2, meta_pb2, decimal_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    pool.Add(text_format.Parse(WITH_OPTIONS, descriptor_pb2.FileDescriptorProto()))
    item = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(item, client, settings)(item(id=7), context("items"))
    assert ProtobufDeserializer(item, settings, client)(data, context("items")).id == 7
    assert not client.get_latest_version("items-value").schema.references


def test_the_client(client: Any) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryError

    first, second = (Schema(json.dumps(record(**fields)), "AVRO") for fields in ({"a": "int"}, {"b": "int"}))
    number = client.register_schema("calls", first)
    assert client.get_schema(number).schema_type == "AVRO" and "calls" in client.get_subjects()
    assert client.lookup_schema("calls", first).version == 1 and client.get_versions("calls") == [1]
    assert not client.test_compatibility("calls", second)
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("calls", second)
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)
    client.set_compatibility("calls", "NONE")
    assert client.get_compatibility("calls") == "NONE"
    assert client.register_schema("calls", second) == number + 1
    assert client.delete_version("calls", 1) == 1
    assert client.delete_subject("calls") == [2]
    assert client.delete_subject("calls", permanent=True) == [1, 2]
