"""Targets of the coverage-guided fuzzer: one module each, with `run(data)` and `SEALS`; see docs/fuzzing.md."""

TARGETS = {
    "scan": 512, "decode": 512, "legacy": 512, "decompress": 512, "validate": 512, "verify": 512, "index": 512,
    "columns": 512, "append": 512, "avro": 512, "json_values": 512, "protobuf_values": 512, "where": 128, "keys": 4096,
    "render": 512, "plain_values": 128, "internal_values": 512, "outline": 512,
}  # fmt: skip
"""Every target, with the most bytes of an input: a small key index has as many, a long condition says nothing more."""
