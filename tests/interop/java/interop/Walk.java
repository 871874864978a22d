package interop;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Reads a log from an offset to its end through UnifiedLog.read, checking each batch's CRC. */
final class Walk {
    private static final int FETCH_BYTES = 1 << 20;

    private Walk() { }

    /** Hands each record from the offset on to the visitor until it answers false; control records are left out, as for a consumer. */
    static void records(UnifiedLog log, long from, Predicate<Record> visitor) throws Exception {
        long next = from;
        while (next < log.logEndOffset()) {
            FetchDataInfo info = log.read(next, FETCH_BYTES, FetchIsolation.LOG_END, true);
            long before = next;
            for (RecordBatch batch : info.records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    if (!batch.isControlBatch() && record.offset() >= from && !visitor.test(record)) {
                        return;
                    }
                }
                next = batch.nextOffset();
            }
            if (next == before) {
                if (log.logSegments().stream().anyMatch(segment -> segment.baseOffset() > before && segment.size() > 0)) {
                    throw new IllegalStateException("no batch at offset " + before);
                }
                return; // a crash between two rolls may leave a log that ends with empty segments
            }
        }
    }

    /** Number of records, first and last offset and timestamp, and the SHA-256 of all values with a newline after each. */
    static Map<String, Object> digest(UnifiedLog log) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        long[] count = {0};
        Record[] ends = new Record[2];
        records(log, log.logStartOffset(), record -> {
            ByteBuffer value = record.value();
            if (value != null) {
                sha.update(value.duplicate());
            }
            sha.update((byte) '\n');
            ends[0] = ends[0] == null ? record : ends[0];
            ends[1] = record;
            count[0]++;
            return true;
        });
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("count", count[0]);
        answer.put("first", ends[0] == null ? null : Describe.row(ends[0].offset(), ends[0].timestamp()));
        answer.put("last", ends[1] == null ? null : Describe.row(ends[1].offset(), ends[1].timestamp()));
        answer.put("sha256", HexFormat.of().formatHex(sha.digest()));
        return answer;
    }
}
