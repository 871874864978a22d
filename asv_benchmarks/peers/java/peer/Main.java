package peer;

import java.io.File;
import java.nio.file.Files;
import java.util.List;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Kafka's storage layer embedded in this process, no network: the peer of kafkalog's own benchmarks.
 *
 * <p>Arguments: an empty work directory, seconds per round, rounds, then the groups to run (append, read, index, recover,
 * map, clean=DIR: a log that is cleaned once, after that of warm=DIR). One
 * JSON object a line per figure: {"name", "value", "unit", "cpu"}, value per second of wall time, cpu the same per
 * second of CPU of the measured thread, both the median of the rounds. Figures in ns are smaller-is-better.
 */
public final class Main {
    private static final int VALUE_BYTES = 100;
    private static final long READ_LOG_BYTES = 200_000_000L;
    private static final long RECOVER_LOG_BYTES = 1_000_000_000L; // more than a last-level cache holds
    private static final int RECOVER_ROUNDS = 2;
    private static final int MAP_ROUNDS = 2;

    private Main() { }

    public static void main(String[] args) throws Exception {
        File work = new File(args[0]);
        Measure measure = new Measure(Double.parseDouble(args[1]), Integer.parseInt(args[2]));
        for (String group : List.of(args).subList(3, args.length)) {
            if (group.startsWith("wrappers=")) {
                wrappers(new File(group.substring("wrappers=".length())), measure);
                continue;
            }
            if (group.startsWith("warm=")) {
                Cleaning.once(new File(group.substring("warm=".length())), new Measure.Round(0, 0));
                continue;
            }
            if (group.startsWith("clean=")) {
                File dir = new File(group.substring("clean=".length()));
                measure.once("clean/" + dir.getName(), "bytes/s", round -> Cleaning.once(dir, round));
                continue;
            }
            switch (group) {
                case "append": append(work, measure); break;
                case "read": read(work, measure); break;
                case "index": index(work, measure); break;
                case "recover": recover(work, measure); break;
                case "map": measure.atMost(MAP_ROUNDS).nanoseconds("offset_map_put", Cleaning::fill); break;
                default: throw new IllegalArgumentException("unknown group " + group);
            }
        }
        System.exit(0); // metrics keep threads that would hold the process
    }

    private static void append(File work, Measure measure) throws Exception {
        for (int perBatch : new int[] {1, 100, 1000}) {
            byte[] batch = Logs.batch(perBatch, VALUE_BYTES, System.currentTimeMillis() - 60_000);
            measure.rate("append/" + perBatch, "records/s", round -> {
                UnifiedLog log = Logs.open(new File(work, "append" + perBatch + "x" + round.number + "-0"));
                long bytes = 0;
                while (round.goesOn() && bytes < 2_000_000_000L) {
                    Logs.append(log, batch);
                    bytes += batch.length;
                    round.count(perBatch);
                }
                round.stop();
                Logs.remove(log);
            });
        }
    }

    private static void read(File work, Measure measure) throws Exception {
        long first = System.currentTimeMillis() - 40_000_000L;
        UnifiedLog thousands = Logs.filled(new File(work, "read1000-0"), 1000, VALUE_BYTES, READ_LOG_BYTES, first);
        measure.rate("scan_crc_iterate/1000", "records/s", round -> Reads.scan(thousands, round));
        Logs.remove(thousands);
        UnifiedLog hundreds = Logs.filled(new File(work, "read100-0"), 100, VALUE_BYTES, READ_LOG_BYTES, first);
        measure.rate("random_read/100", "reads/s", round -> Reads.byOffset(hundreds, round));
        measure.rate("offset_for_time/100", "lookups/s", round -> Reads.byTime(hundreds, first, round));
        Logs.remove(hundreds);
    }

    /** What an unclean start costs: a gigabyte takes long enough that few rounds tell. */
    private static void recover(File work, Measure all) throws Exception {
        Measure measure = all.atMost(RECOVER_ROUNDS);
        for (int perBatch : new int[] {1, 100}) {
            File dir = new File(work, "recover" + perBatch + "-0");
            Logs.filled(dir, perBatch, VALUE_BYTES, RECOVER_LOG_BYTES, System.currentTimeMillis() - 40_000_000L).close();
            measure.rate("recover/" + perBatch, "bytes/s", round -> {
                UnifiedLog log = Logs.recovered(dir);
                round.stop();
                round.count(log.size());
                log.close();
            });
            Utils.delete(dir);
        }
    }

    private static void wrappers(File file, Measure measure) throws Exception {
        byte[] data = Files.readAllBytes(file.toPath());
        measure.rate("wrappers", "records/s", round -> Reads.all(data, round));
    }

    private static void index(File work, Measure measure) throws Exception {
        Indexes indexes = new Indexes(work);
        measure.nanoseconds("offset_index_lookup/warm", indexes::warm);
        measure.nanoseconds("offset_index_lookup/random", indexes::random);
        indexes.remove();
    }
}
