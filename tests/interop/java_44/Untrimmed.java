import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * One partition directory under the UnifiedLog of 4.4, opened as after a clean stop: directory, number of records to append, whether to preallocate.
 * Prints the end offset, and closes without the step that trims.
 */
public class Untrimmed {
    public static void main(String[] args) throws Exception {
        File dir = new File(args[0]);
        dir.mkdirs();
        Map<String, String> settings = Map.of("preallocate", args[2], "internal.segment.bytes", "20000", "segment.index.bytes", "1000",
            "index.interval.bytes", "200", "retention.ms", "-1");
        KafkaScheduler scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(settings), 0, Long.MAX_VALUE, scheduler, new BrokerTopicStats(), Time.SYSTEM,
            900_000, new ProducerStateManagerConfig(86_400_000, false), 86_400_000, new LogDirFailureChannel(1), true, Optional.empty());
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            byte[] value = ("value " + log.logEndOffset()).getBytes(StandardCharsets.UTF_8);
            log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(System.currentTimeMillis(), null, value)), 0);
        }
        System.out.println(log.logEndOffset());
        log.close();
        scheduler.shutdown();
    }
}
