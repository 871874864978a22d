package peer;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** Kafka's Cleaner on a log that lies there already, and its offset map filled with as many keys as it takes. */
final class Cleaning {
    private static final int MAP_BYTES = 128 << 20;
    private static final int BUFFER_BYTES = 512 << 10;
    private static final int MOST_BUFFER_BYTES = 4 << 20;
    private static final double LOAD = 0.75;

    private Cleaning() { }

    /** Cleans what a directory holds below its last segment; counts the bytes that lay there. */
    static void once(File dir, Measure.Round round) throws Exception {
        UnifiedLog log = Logs.compacted(dir);
        log.updateHighWatermark(log.logEndOffset());
        Throttler none = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(MAP_BYTES), BUFFER_BYTES, MOST_BUFFER_BYTES, 0.9, none, Time.SYSTEM, partition -> { });
        LogToClean work = new LogToClean(log, 0, log.activeSegment().baseOffset(), true);
        round.begin();
        Map.Entry<Long, CleanerStats> done = cleaner.clean(work);
        round.stop();
        if (done.getKey() != work.firstUncleanableOffset()) {
            throw new IllegalStateException("cleaned to " + done.getKey() + " only");
        }
        round.count(work.totalBytes());
        log.close();
    }

    /** Puts keys of 16 bytes until three quarters of the slots are taken. */
    static void fill(Measure.Round round) throws Exception {
        SkimpyOffsetMap map = new SkimpyOffsetMap(MAP_BYTES);
        ByteBuffer key = ByteBuffer.allocate(16);
        long wanted = (long) (map.slots() * LOAD);
        round.begin();
        for (long n = 0; n < wanted; n++) {
            key.clear();
            key.putLong(0, n * 0x9E3779B97F4A7C15L);
            key.putLong(8, n);
            map.put(key, n);
        }
        round.stop();
        round.count(wanted);
    }
}
