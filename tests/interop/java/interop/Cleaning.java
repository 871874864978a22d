package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
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
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("end_offset", done.getKey());
        result.put("bytes_read", stats.bytesRead());
        result.put("bytes_written", stats.bytesWritten());
        result.put("messages_read", stats.messagesRead());
        result.put("messages_written", stats.messagesWritten());
        result.put("invalid_messages_read", stats.invalidMessagesRead());
        result.put("map_messages_read", stats.mapMessagesRead());
        return result;
    }

    /**
     * What Kafka's LogCleanerManager makes of one log, by the checkpoint file beside its directory; null where it does
     * not choose it. Fields: clock (ms).
     */
    static Map<String, Object> choose(UnifiedLog log, JsonNode command) throws Exception {
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(log.topicPartition(), log));
        LogCleanerManager manager = new LogCleanerManager(List.of(log.parentDirFile()), logs, new LogDirFailureChannel(1));
        try {
            Time time = new Standing(command.get("clock").asLong());
            Optional<LogToClean> chosen = manager.grabFilthiestCompactedLog(time, new PreCleanStats());
            if (chosen.isEmpty()) {
                return null;
            }
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("first_dirty", chosen.get().firstDirtyOffset());
            result.put("first_uncleanable", chosen.get().firstUncleanableOffset());
            result.put("clean_bytes", chosen.get().cleanBytes());
            result.put("cleanable_bytes", chosen.get().cleanableBytes());
            result.put("ratio", chosen.get().cleanableRatio());
            return result;
        } finally {
            manager.removeMetrics();
        }
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
