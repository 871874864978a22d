package peer;

import java.io.File;
import java.util.Random;
import org.apache.kafka.storage.internals.log.OffsetIndex;

/** A full offset index of 10 MiB, looked up near its end and anywhere. */
final class Indexes {
    private static final int BYTES = 10 << 20;
    private static final int QUERIES = 1 << 16;
    private static final int STEP = 37;
    private static final int WARM_ENTRIES = 900;

    private final OffsetIndex index;
    private final long[] tail = new long[QUERIES];
    private final long[] anywhere = new long[QUERIES];

    Indexes(File work) throws Exception {
        index = new OffsetIndex(new File(work, "00000000000000000000.index"), 0, BYTES);
        int entries = index.maxEntries();
        for (int i = 0; i < entries; i++) {
            index.append((long) STEP * (i + 1), 700 * i);
        }
        Random random = new Random(3);
        for (int i = 0; i < QUERIES; i++) {
            tail[i] = (long) STEP * (entries - random.nextInt(WARM_ENTRIES));
            anywhere[i] = (long) (random.nextDouble() * STEP * entries);
        }
    }

    void warm(Measure.Round round) {
        lookup(tail, round);
    }

    void random(Measure.Round round) {
        lookup(anywhere, round);
    }

    private void lookup(long[] targets, Measure.Round round) {
        long sum = 0;
        while (round.goesOn()) {
            for (int i = 0; i < 4096; i++) {
                sum += index.lookup(targets[(int) ((i + round.asked() * 4096L) % QUERIES)]).position();
            }
            round.count(4096);
        }
        Reads.sink = sum;
    }

    void remove() throws Exception {
        index.close();
        index.deleteIfExists();
    }
}
