package peer;

import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** The three ways to read that are measured; each checks what it found, so that nothing is optimised away. */
final class Reads {
    private static final int CHUNK = 1 << 20;
    static volatile long sink;

    private Reads() { }

    /** 1 MiB at a time into memory, every CRC checked, every record and its value's length touched; over again at the end. */
    static void scan(UnifiedLog log, Measure.Round round) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(CHUNK);
        long next = 0;
        long sum = 0;
        while (round.goesOn()) {
            FileRecords slice = (FileRecords) log.read(next, CHUNK, FetchIsolation.LOG_END, true).records;
            buffer.clear();
            buffer.limit(Math.min(slice.sizeInBytes(), CHUNK));
            slice.readInto(buffer, 0);
            long records = 0;
            for (RecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    sum += record.valueSize() + record.offset();
                    records++;
                }
                next = batch.nextOffset();
            }
            round.count(records);
            next = next >= log.logEndOffset() ? 0 : next;
        }
        sink = sum;
    }

    /** Every record of batches in memory, its value's length touched. */
    static void all(byte[] data, Measure.Round round) {
        long sum = 0;
        while (round.goesOn()) {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                long records = 0;
                for (Record record : batch) {
                    sum += record.valueSize() + record.offset();
                    records++;
                }
                round.count(records);
            }
        }
        sink = sum;
    }

    /** One record at a random offset. */
    static void byOffset(UnifiedLog log, Measure.Round round) throws Exception {
        Random random = new Random(5);
        while (round.goesOn()) {
            long offset = (long) (random.nextDouble() * log.logEndOffset());
            sink += find(log.read(offset, 1, FetchIsolation.LOG_END, true), offset).valueSize();
            round.count(1);
        }
    }

    private static Record find(FetchDataInfo info, long offset) {
        for (RecordBatch batch : info.records.batches()) {
            for (Record record : batch) {
                if (record.offset() == offset) {
                    return record;
                }
            }
        }
        throw new IllegalStateException("offset " + offset + " was not found");
    }

    /** The offset of a random timestamp, in a log whose record n has the timestamp first + n. */
    static void byTime(UnifiedLog log, long first, Measure.Round round) throws Exception {
        Random random = new Random(6);
        while (round.goesOn()) {
            long offset = (long) (random.nextDouble() * log.logEndOffset());
            long found = log.fetchOffsetByTimestamp(first + offset, Optional.empty()).timestampAndOffsetOpt().orElseThrow().offset;
            if (found != offset) {
                throw new IllegalStateException("time of offset " + offset + " gave " + found);
            }
            round.count(1);
        }
    }
}
