package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** Kafka's own look at a record set before a leader gives it offsets. */
final class Validation {
    private Validation() { }

    /**
     * Fields: data (base64), target (a codec, or producer), log_append_time (whether the log stamps), before_ms, after_ms, compact,
     * now, epoch, client (whether the origin is one), first_offset. What the validator returned, or the class it threw and the
     * indices of the records it named.
     */
    static Map<String, Object> run(JsonNode command) {
        Counters counters = new Counters();
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(command.get("first_offset").asLong());
            LogValidator.ValidationResult result =
                validator(command).validateMessagesAndAssignOffsets(offset, counters, BufferSupplier.NO_CACHING);
            answer.put("data", Control.text(result.validatedRecords()));
            answer.put("next_offset", offset.value);
            answer.put("max_timestamp", result.maxTimestampMs());
            answer.put("size_may_have_changed", result.messageSizeMaybeChanged());
            answer.put("converted", result.recordValidationStats().numRecordsConverted());
        } catch (RecordValidationException problem) {
            answer.put("error", problem.invalidException().getClass().getSimpleName());
            List<Object> records = new ArrayList<>();
            problem.recordErrors().forEach(error -> records.add(List.of(error.batchIndex, error.message)));
            answer.put("records", records);
        } catch (RuntimeException problem) {
            answer.put("error", problem.getClass().getSimpleName());
            answer.put("message", problem.getMessage());
            answer.put("records", List.of());
        }
        answer.put("counters", counters.values);
        return answer;
    }

    private static LogValidator validator(JsonNode command) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(command.get("data").asText())));
        CompressionType source = CompressionType.NONE;
        for (RecordBatch batch : records.batches()) {
            if (batch.compressionType() != CompressionType.NONE) {
                source = batch.compressionType();
            }
        }
        String target = command.get("target").asText();
        return new LogValidator(records, new TopicPartition("t", 0), new StandingClock(command.get("now").asLong()), source,
            target.equals("producer") ? Compression.of(source).build() : Compression.of(target).build(),
            command.get("compact").asBoolean(), RecordBatch.CURRENT_MAGIC_VALUE,
            command.get("log_append_time").asBoolean() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            command.get("before_ms").asLong(), command.get("after_ms").asLong(), command.get("epoch").asInt(),
            command.get("client").asBoolean() ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR);
    }

    /** What the validator counts: magic, offset, sequence, checksums, keys. */
    private static final class Counters implements LogValidator.MetricsRecorder {
        private final int[] values = new int[5];

        @Override
        public void recordInvalidMagic() {
            values[0]++;
        }

        @Override
        public void recordInvalidOffset() {
            values[1]++;
        }

        @Override
        public void recordInvalidSequence() {
            values[2]++;
        }

        @Override
        public void recordInvalidChecksums() {
            values[3]++;
        }

        @Override
        public void recordNoKeyCompactedTopic() {
            values[4]++;
        }
    }

    /** A clock that stands still. */
    private record StandingClock(long now) implements Time {
        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return 0;
        }

        @Override
        public void sleep(long ms) { }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    }
}
