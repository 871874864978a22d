"""Records of `__transaction_state`: the transaction coordinator's keys and values (format.md section 13, A10)."""

from typing import Final

from kafkalog.records.schema import Schema, schemas

TABLE: Final = """\
TransactionLogKey 0 0
    transactionalId string
TransactionLogValue 0 0-1 flexible 1+
    producerId i64
    previousProducerId i64 1+ tag 0 = -1
    nextProducerId i64 1+ tag 1 = -1
    producerEpoch i16
    nextProducerEpoch i16 1+ tag 3 = -1
    transactionTimeoutMs i32
    transactionStatus i8
    transactionPartitions [{}]?
        topic string
        partitionIds [i32]
    transactionLastUpdateTimestampMs i64
    transactionStartTimestampMs i64
    clientTransactionVersion i16 1+ tag 2
"""

_ALL: Final = schemas(TABLE)
KEYS: Final[dict[int, Schema]] = {schema.number: schema for name, schema in _ALL.items() if name.endswith("Key")}
"""Schemas by the number at the start of a key."""

VALUES: Final[dict[int, Schema]] = {schema.number: schema for name, schema in _ALL.items() if name.endswith("Value")}
"""Schemas by the number of their keys."""
