package peer;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Logs with the default settings of a topic, and batches to fill them with. */
final class Logs {
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final int DAY_MS = 86_400_000;

    static {
        SCHEDULER.startup();
    }

    private Logs() { }

    static UnifiedLog open(File dir) throws IOException {
        if (!dir.mkdirs()) {
            throw new IOException("cannot make " + dir);
        }
        return loaded(dir, true);
    }

    /** The log in a directory that was not closed well: every batch is read and checked, the indexes are rebuilt. */
    static UnifiedLog recovered(File dir) throws IOException {
        return loaded(dir, false);
    }

    /** The log of a compacted topic that lies in a directory and was closed well. */
    static UnifiedLog compacted(File dir) throws IOException {
        return loaded(dir, true, Map.of("cleanup.policy", "compact", "segment.bytes", 256 << 20));
    }

    private static UnifiedLog loaded(File dir, boolean clean) throws IOException {
        return loaded(dir, clean, Map.of());
    }

    private static UnifiedLog loaded(File dir, boolean clean, Map<String, Object> config) throws IOException {
        return UnifiedLog.create(dir, new LogConfig(config), 0, 0, SCHEDULER, STATS, Time.SYSTEM, DAY_MS,
            new ProducerStateManagerConfig(DAY_MS, false), DAY_MS, new LogDirFailureChannel(1), clean, Optional.empty());
    }

    static void remove(UnifiedLog log) throws IOException {
        log.close();
        Utils.delete(log.dir());
    }

    /** A ready batch: records with values of random text, no key, timestamps one ms apart. */
    static byte[] batch(int records, int valueBytes, long firstTimestamp) {
        byte[] value = new byte[valueBytes];
        Random random = new Random(7);
        for (int i = 0; i < valueBytes; i++) {
            value[i] = (byte) (' ' + random.nextInt(95));
        }
        SimpleRecord[] rows = new SimpleRecord[records];
        for (int i = 0; i < records; i++) {
            rows[i] = new SimpleRecord(firstTimestamp + i, null, value);
        }
        ByteBuffer built = MemoryRecords.withRecords(Compression.NONE, rows).buffer();
        byte[] bytes = new byte[built.remaining()];
        built.get(bytes);
        return bytes;
    }

    /** Appends a ready batch; offsets are assigned in place, so its base is set back to 0 first, as a client sends it. */
    static void append(UnifiedLog log, byte[] batch) throws IOException {
        ByteBuffer buffer = ByteBuffer.wrap(batch);
        buffer.putLong(0, 0L);
        log.appendAsLeader(MemoryRecords.readableRecords(buffer), 0);
    }

    /** A log of about totalBytes whose record at offset n has the timestamp firstTimestamp + n. */
    static UnifiedLog filled(File dir, int perBatch, int valueBytes, long totalBytes, long firstTimestamp) throws IOException {
        UnifiedLog log = open(dir);
        for (long bytes = 0; bytes < totalBytes;) {
            byte[] batch = batch(perBatch, valueBytes, firstTimestamp + log.logEndOffset());
            append(log, batch);
            bytes += batch.length;
        }
        log.updateHighWatermark(log.logEndOffset());
        return log;
    }
}
