package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** One partition directory under Kafka's UnifiedLog, and what can be asked of it. Lists go in and out, so that one command answers many questions. */
final class Partition {
    private static final int PRODUCER_EXPIRY_MS = 86_400_000;
    private static final int TRANSACTION_TIMEOUT_MS = 900_000;

    private final InlineScheduler scheduler = new InlineScheduler();
    private final File dir;
    private final UnifiedLog log;

    /** Fields: dir, config {dotted: text}, clean (bool), log_start, recovery_point, clock (ms, where it stands). The directory is made if it is missing. */
    Partition(JsonNode command) throws Exception {
        dir = new File(command.get("dir").asText());
        if (!dir.isDirectory() && !dir.mkdirs()) {
            throw new IllegalArgumentException("cannot make " + dir);
        }
        Map<String, Object> config = new HashMap<>();
        command.path("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        Time time = command.hasNonNull("clock") ? new Cleaning.Standing(command.get("clock").asLong()) : Time.SYSTEM;
        log = UnifiedLog.create(dir, new LogConfig(config), command.path("log_start").asLong(0), command.path("recovery_point").asLong(0),
            scheduler, new BrokerTopicStats(), time, TRANSACTION_TIMEOUT_MS, new ProducerStateManagerConfig(PRODUCER_EXPIRY_MS, false),
            PRODUCER_EXPIRY_MS, new LogDirFailureChannel(1), command.get("clean").asBoolean(), Optional.empty());
        scheduler.drain();
    }

    Map<String, Object> state() throws Exception {
        return Describe.state(log);
    }

    Map<String, Object> deepState() throws Exception {
        return Describe.deepState(log);
    }

    /** For each of "at" (ms, or -1 latest, -2 earliest, -3 largest timestamp): [timestamp, offset, leader epoch or null], or null. */
    List<Object> times(JsonNode command) {
        List<Object> found = new ArrayList<>();
        for (JsonNode at : command.get("at")) {
            Optional<FileRecords.TimestampAndOffset> hit = log.fetchOffsetByTimestamp(at.asLong(), Optional.empty()).timestampAndOffsetOpt();
            found.add(hit.map(h -> Describe.row(h.timestamp, h.offset, h.leaderEpoch.orElse(null))).orElse(null));
        }
        return found;
    }

    /** For each of "at": [segment base, position, size] of what a read with a limit of one byte finds, or {"error"}. */
    List<Object> offsets(JsonNode command) {
        List<Object> found = new ArrayList<>();
        for (JsonNode at : command.get("at")) {
            try {
                FetchDataInfo info = log.read(at.asLong(), 1, FetchIsolation.LOG_END, true);
                found.add(Describe.row(info.fetchOffsetMetadata.segmentBaseOffset, info.fetchOffsetMetadata.relativePositionInSegment, info.records.sizeInBytes()));
            } catch (Exception problem) {
                found.add(Map.of("error", problem.getClass().getSimpleName()));
            }
        }
        return found;
    }

    /** At most "limit" records from "offset" on. */
    List<Object> read(JsonNode command) throws Exception {
        List<Object> records = new ArrayList<>();
        int limit = command.path("limit").asInt(Integer.MAX_VALUE);
        Walk.records(log, command.path("offset").asLong(log.logStartOffset()), record -> {
            records.add(Describe.record(record));
            return records.size() < limit;
        });
        return records;
    }

    Map<String, Object> digest() throws Exception {
        return Walk.digest(log);
    }

    /** Each of "batches" (see {@link Batches}) as one append of a leader. */
    List<Object> append(JsonNode command) throws Exception {
        List<Object> infos = new ArrayList<>();
        for (JsonNode batch : command.get("batches")) {
            infos.add(append(Batches.parse(batch), command.path("leader_epoch").asInt(0)));
        }
        return infos;
    }

    /** "count" records made by rule (see {@link Batches#made}), "per_batch" at a time. */
    long fill(JsonNode command) throws Exception {
        long count = command.get("count").asLong();
        int perBatch = command.get("per_batch").asInt();
        for (long from = 0; from < count; from += perBatch) {
            append(Batches.made(command, from, Math.min(count, from + perBatch)), command.path("leader_epoch").asInt(0));
        }
        return log.logEndOffset();
    }

    private Object append(MemoryRecords batch, int leaderEpoch) throws Exception {
        LogAppendInfo info = log.appendAsLeader(batch, leaderEpoch);
        scheduler.drain();
        return Describe.append(info);
    }

    long roll() throws Exception {
        long base = log.roll().baseOffset();
        scheduler.drain();
        return base;
    }

    boolean truncateTo(long offset) {
        boolean done = log.truncateTo(offset);
        scheduler.drain();
        return done;
    }

    /** What Kafka's Cleaner counted in one clean; see {@link Cleaning}. All of the log counts as replicated. */
    Map<String, Object> compact(JsonNode command) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        Map<String, Object> result = Cleaning.run(log, command);
        scheduler.drain();
        return result;
    }

    /** What Kafka's LogCleanerManager makes of the log; see {@link Cleaning}. Field: high_watermark. */
    Map<String, Object> chosen(JsonNode command) throws Exception {
        log.updateHighWatermark(command.get("high_watermark").asLong());
        return Cleaning.choose(log, command);
    }

    /** Closes; with marker, leaves in the parent the file by which a broker tells that it stopped well. */
    void close(boolean marker) throws Exception {
        log.close();
        scheduler.drain();
        if (marker) {
            new CleanShutdownFileHandler(dir.getAbsoluteFile().getParent()).write(-1);
        }
    }
}
