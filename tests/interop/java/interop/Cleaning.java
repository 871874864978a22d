package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** Kafka's own Cleaner, run on one log. */
final class Cleaning {
    private static final int BUFFER_BYTES = 65_536;

    private Cleaning() { }

    /** Fields: from (first dirty offset), to (first uncleanable offset), map_bytes, load_factor, clock (ms). */
    static Map<String, Object> run(UnifiedLog log, JsonNode command) throws Exception {
        Time time = new Standing(command.get("clock").asLong());
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time);
        SkimpyOffsetMap map = new SkimpyOffsetMap(command.path("map_bytes").asInt(1 << 20));
        Cleaner cleaner = new Cleaner(0, map, BUFFER_BYTES, 1 << 20, command.path("load_factor").asDouble(0.9), throttler, time, partition -> { });
        long from = command.get("from").asLong();
        Map.Entry<Long, CleanerStats> done = cleaner.clean(new LogToClean(log, from, command.get("to").asLong(), true));
        CleanerStats stats = done.getValue();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("end_offset", done.getKey());
        told.put("bytes_read", stats.bytesRead());
        told.put("bytes_written", stats.bytesWritten());
        told.put("messages_read", stats.messagesRead());
        told.put("messages_written", stats.messagesWritten());
        told.put("invalid_messages_read", stats.invalidMessagesRead());
        told.put("map_messages_read", stats.mapMessagesRead());
        return told;
    }

    /** A clock that stands still. */
    static final class Standing implements Time {
        private final long now;

        Standing(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) { }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    }
}
