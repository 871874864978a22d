package interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Kafka's objects as JSON values: bytes as base64, absent as null. */
final class Describe {
    private Describe() { }

    static List<Object> row(Object... values) {
        return Arrays.asList(values);
    }

    static Map<String, Object> state(UnifiedLog log) throws Exception {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("log_start_offset", log.logStartOffset());
        state.put("log_end_offset", log.logEndOffset());
        state.put("recovery_point", log.recoveryPoint());
        List<Object> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segments.add(row(segment.baseOffset(), segment.size(), segment.largestTimestamp()));
        }
        state.put("segments", segments);
        return state;
    }

    /** The same with every index entry, and the end offsets of the leader epochs. */
    static Map<String, Object> deepState(UnifiedLog log) throws Exception {
        Map<String, Object> state = state(log);
        List<Object> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            Map<String, Object> s = new LinkedHashMap<>();
            s.put("base_offset", segment.baseOffset());
            s.put("size", segment.size());
            s.put("largest_timestamp", segment.largestTimestamp());
            s.put("offset_index", entries(segment.offsetIndex()));
            s.put("time_index", entries(segment.timeIndex()));
            segments.add(s);
        }
        state.put("segments", segments);
        List<Object> epochs = new ArrayList<>();
        log.leaderEpochCache().epochEntries().forEach(e -> epochs.add(row(e.epoch(), e.startOffset())));
        state.put("leader_epochs", epochs);
        return state;
    }

    private static List<Object> entries(OffsetIndex index) {
        List<Object> rows = new ArrayList<>();
        for (int i = 0; i < index.entries(); i++) {
            OffsetPosition entry = index.entry(i);
            rows.add(row(entry.offset(), entry.position()));
        }
        return rows;
    }

    private static List<Object> entries(TimeIndex index) {
        List<Object> rows = new ArrayList<>();
        for (int i = 0; i < index.entries(); i++) {
            TimestampOffset entry = index.entry(i);
            rows.add(row(entry.timestamp(), entry.offset()));
        }
        return rows;
    }

    /** [offset, timestamp, key, value, [[header key, value]]]. */
    static List<Object> record(Record record) {
        List<Object> headers = headers(Arrays.asList(record.headers()));
        return row(record.offset(), record.timestamp(), text(bytes(record.key())), text(bytes(record.value())), headers);
    }

    static List<Object> record(ConsumerRecord<byte[], byte[]> record) {
        return row(record.offset(), record.timestamp(), text(record.key()), text(record.value()), headers(record.headers()));
    }

    private static List<Object> headers(Iterable<Header> headers) {
        List<Object> rows = new ArrayList<>();
        for (Header header : headers) {
            rows.add(row(header.key(), text(header.value())));
        }
        return rows;
    }

    static Map<String, Object> append(LogAppendInfo info) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("first_offset", info.firstOffset());
        answer.put("last_offset", info.lastOffset());
        answer.put("last_leader_epoch", info.lastLeaderEpoch().orElse(null));
        answer.put("max_timestamp", info.maxTimestamp());
        answer.put("log_append_time", info.logAppendTime());
        answer.put("log_start_offset", info.logStartOffset());
        answer.put("source_compression", info.sourceCompression().name);
        answer.put("valid_bytes", info.validBytes());
        return answer;
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
