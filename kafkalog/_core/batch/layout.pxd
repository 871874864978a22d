"""Field offsets, sizes and attribute bits of the record formats (format.md sections 1 to 5), derived by addition."""

cdef enum:
    # --- what every format shares
    BASE_OFFSET_AT = 0
    SIZE_AT = BASE_OFFSET_AT + 8
    LOG_OVERHEAD = SIZE_AT + 4                  # offset and size field: bytes the size field does not count
    MAGIC_AT = LOG_OVERHEAD + 4                 # the same place in every format
    HEADER_TO_MAGIC = MAGIC_AT + 1              # bytes needed to know the format
    MIN_SIZE_FIELD = 14                         # smallest legal value of the size field: a v0 message of nulls

    # --- v2 batch
    V2_LEADER_EPOCH_AT = LOG_OVERHEAD
    V2_CRC_AT = MAGIC_AT + 1
    V2_ATTRIBUTES_AT = V2_CRC_AT + 4            # the checksum covers this byte to the end
    V2_LAST_DELTA_AT = V2_ATTRIBUTES_AT + 2
    V2_BASE_TIMESTAMP_AT = V2_LAST_DELTA_AT + 4
    V2_MAX_TIMESTAMP_AT = V2_BASE_TIMESTAMP_AT + 8
    V2_PRODUCER_ID_AT = V2_MAX_TIMESTAMP_AT + 8
    V2_PRODUCER_EPOCH_AT = V2_PRODUCER_ID_AT + 8
    V2_BASE_SEQUENCE_AT = V2_PRODUCER_EPOCH_AT + 2
    V2_COUNT_AT = V2_BASE_SEQUENCE_AT + 4
    V2_RECORDS_AT = V2_COUNT_AT + 4             # 61: also the size of an empty batch

    # --- v0 and v1 messages
    LEGACY_CRC_AT = LOG_OVERHEAD                # covers magic to the end
    LEGACY_ATTRIBUTES_AT = MAGIC_AT + 1
    V1_TIMESTAMP_AT = LEGACY_ATTRIBUTES_AT + 1
    V0_KEY_AT = LEGACY_ATTRIBUTES_AT + 1
    V1_KEY_AT = V1_TIMESTAMP_AT + 8
    V0_MIN_MESSAGE = V0_KEY_AT + 8              # with its 12 bytes of offset and size
    V1_MIN_MESSAGE = V1_KEY_AT + 8

    # --- attribute bits
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40

    # --- a record inside a v2 batch
    MAX_VARLONG_BYTES = 10
    MIN_RECORD_BYTES = 7                        # length, attributes, two deltas, two lengths, header count


cdef enum Status:
    # why a worker stopped; layer 2 turns it into a typed error
    OK = 0
    ERR_SHORT = 1                               # the data ends inside a field
    ERR_VARINT = 2                              # a varint longer than its type allows
    ERR_RECORD_SIZE = 3                         # record length runs past the batch, or is negative
    ERR_RECORD_BODY = 4                         # bytes used differ from the record's length
    ERR_KEY_SIZE = 5
    ERR_VALUE_SIZE = 6
    ERR_HEADER_COUNT = 7
    ERR_HEADER_KEY = 8
    ERR_HEADER_VALUE = 9
    ERR_COUNT_LOW = 10                          # bytes left after the last record
    ERR_COUNT_HIGH = 11                         # fewer records than the header says
    ERR_COUNT_NEGATIVE = 12
    ERR_COMPRESSED = 13                         # this worker reads uncompressed records only
    ERR_MAGIC = 14
    ERR_MEMORY = 15
    ERR_MESSAGE_SIZE = 16                       # a v0/v1 message shorter than its own header
    ERR_WRAPPER_NULL = 17                       # a compressed v0/v1 message without a value
    ERR_WRAPPER_EMPTY = 18                      # ... without inner messages
    ERR_WRAPPER_NESTED = 19                     # ... that holds another compressed one
    ERR_WRAPPER_OFFSET = 20                     # ... whose offset lies below that of its last inner message
    ERR_WRAPPER_CODEC = 21                      # ... compressed with zstd
    ERR_RECORD_OFFSET = 23                      # an offset outside its batch, or not above the one before
