package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/** Record sets in memory, of every format and codec: built by Kafka's builder, read by its readers. */
final class Sets {
    private static final int FIRST_CAPACITY = 512;

    private Sets() { }

    /**
     * Fields: magic, codec, base_offset, records (as in {@link Batches#parse}), and perhaps level, log_append_time, producer_id,
     * producer_epoch, base_sequence, transactional, control (the records are then control records), leader_epoch. The set in base64.
     */
    static String build(JsonNode command) {
        boolean control = command.path("control").asBoolean(false);
        try (MemoryRecordsBuilder builder = builder(command, control)) {
            for (SimpleRecord record : Batches.records(command.get("records"))) {
                if (control) {
                    builder.appendControlRecordWithOffset(builder.numRecords() + command.get("base_offset").asLong(), record);
                } else {
                    builder.append(record);
                }
            }
            return Control.text(builder.build());
        }
    }

    /** Fields as for build, and timestamp. How the builder takes a raw marker as a plain record, and by its own call: the class it throws, or null. */
    static List<Object> rawMarker(JsonNode command) {
        List<Object> outcomes = new ArrayList<>();
        for (boolean control : new boolean[] {false, true}) {
            outcomes.add(thrown(() -> builder(command, control).append(0L, ControlRecordType.COMMIT.recordKey(), ByteBuffer.allocate(6))));
            outcomes.add(thrown(() -> builder(command, control).appendEndTxnMarker(0L, new EndTransactionMarker(ControlRecordType.COMMIT, 0))));
        }
        return outcomes;
    }

    private static String thrown(Runnable step) {
        try {
            step.run();
            return null;
        } catch (RuntimeException problem) {
            return problem.getClass().getSimpleName();
        }
    }

    private static MemoryRecordsBuilder builder(JsonNode command, boolean control) {
        boolean byLog = command.has("log_append_time");
        byte magic = (byte) command.get("magic").asInt();
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : byLog ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        return new MemoryRecordsBuilder(ByteBuffer.allocate(FIRST_CAPACITY), magic, compression(command), type,
            command.get("base_offset").asLong(), command.path("log_append_time").asLong(-1), command.path("producer_id").asLong(-1),
            (short) command.path("producer_epoch").asInt(-1), command.path("base_sequence").asInt(-1),
            command.path("transactional").asBoolean(false), control, command.path("leader_epoch").asInt(-1), Integer.MAX_VALUE);
    }

    private static Compression compression(JsonNode command) {
        String name = command.get("codec").asText();
        if (!command.has("level")) {
            return Compression.of(name).build();
        }
        int level = command.get("level").asInt();
        switch (CompressionType.forName(name)) {
            case GZIP: return Compression.gzip().level(level).build();
            case LZ4: return Compression.lz4().level(level).build();
            case ZSTD: return Compression.zstd().level(level).build();
            default: throw new IllegalArgumentException(name + " has no level");
        }
    }

    /** Field: data (base64). Each batch, checked, with its records read twice: at once and as a stream. */
    static List<Object> read(JsonNode command) {
        List<Object> batches = new ArrayList<>();
        ByteBuffer data = ByteBuffer.wrap(Base64.getDecoder().decode(command.get("data").asText()));
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
            batch.ensureValid();
            Map<String, Object> fields = header(batch);
            List<Object> records = new ArrayList<>();
            for (Record record : batch) {
                record.ensureValid();
                records.add(Describe.record(record));
            }
            List<Object> streamed = new ArrayList<>();
            try (CloseableIterator<Record> stream = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                stream.forEachRemaining(record -> streamed.add(Describe.record(record)));
            }
            if (!records.equals(streamed)) {
                throw new IllegalStateException("the stream gives other records");
            }
            fields.put("records", records);
            batches.add(fields);
        }
        return batches;
    }

    private static Map<String, Object> header(RecordBatch batch) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("magic", batch.magic());
        fields.put("codec", batch.compressionType().name);
        fields.put("base_offset", batch.baseOffset());
        fields.put("last_offset", batch.lastOffset());
        fields.put("size", batch.sizeInBytes());
        fields.put("timestamp_type", batch.timestampType().id);
        fields.put("max_timestamp", batch.maxTimestamp());
        fields.put("producer_id", batch.producerId());
        fields.put("producer_epoch", batch.producerEpoch());
        fields.put("base_sequence", batch.baseSequence());
        fields.put("leader_epoch", batch.partitionLeaderEpoch());
        fields.put("is_transactional", batch.isTransactional());
        fields.put("is_control", batch.isControlBatch());
        return fields;
    }
}
