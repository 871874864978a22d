package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

/** Batches of format v2, uncompressed, from JSON or made by rule. */
final class Batches {
    private Batches() { }

    /** A list of records [timestamp, key, value, [[header key, value]]], bytes in base64 or null; the headers may be left out. */
    static MemoryRecords parse(JsonNode batch) {
        return MemoryRecords.withRecords(Compression.NONE, records(batch).toArray(new SimpleRecord[0]));
    }

    /** The records of such a list. */
    static List<SimpleRecord> records(JsonNode batch) {
        List<SimpleRecord> records = new ArrayList<>();
        for (JsonNode record : batch) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.path(3)) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            records.add(new SimpleRecord(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)), headers.toArray(new Header[0])));
        }
        return records;
    }

    /**
     * Records number "from" to "to" of a rule: value "prefix" + number, no key, timestamp "first_timestamp" + number * "step_ms",
     * less "back_ms" for every "back_every"-th, so that times need not grow.
     */
    static MemoryRecords made(JsonNode rule, long from, long to) {
        String prefix = rule.path("prefix").asText("record ");
        long first = rule.get("first_timestamp").asLong();
        long step = rule.path("step_ms").asLong(1);
        long back = rule.path("back_ms").asLong(0);
        long every = rule.path("back_every").asLong(1);
        SimpleRecord[] records = new SimpleRecord[(int) (to - from)];
        for (long i = from; i < to; i++) {
            long timestamp = first + i * step - (i % every == 0 ? back : 0);
            records[(int) (i - from)] = new SimpleRecord(timestamp, null, (prefix + i).getBytes());
        }
        return MemoryRecords.withRecords(Compression.NONE, records);
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
