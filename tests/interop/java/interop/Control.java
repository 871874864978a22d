package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Control batches, by Kafka's own calls for each kind. */
final class Control {
    private static final short VERSION = 0;

    private Control() { }

    /** Fields: kind, base_offset, timestamp, leader_epoch; producer_id, producer_epoch, coordinator_epoch of a marker, else data. The batch in base64. */
    static String build(JsonNode command) {
        long offset = command.get("base_offset").asLong();
        long timestamp = command.get("timestamp").asLong();
        int epoch = command.get("leader_epoch").asInt();
        JsonNode data = command.path("data");
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        ControlRecordType kind = ControlRecordType.valueOf(command.get("kind").asText());
        switch (kind) {
            case LEADER_CHANGE:
                return text(MemoryRecords.withLeaderChangeMessage(offset, timestamp, epoch, buffer, LeaderChangeMessageJsonConverter.read(data, VERSION)));
            case SNAPSHOT_HEADER:
                return text(MemoryRecords.withSnapshotHeaderRecord(offset, timestamp, epoch, buffer, SnapshotHeaderRecordJsonConverter.read(data, VERSION)));
            case SNAPSHOT_FOOTER:
                return text(MemoryRecords.withSnapshotFooterRecord(offset, timestamp, epoch, buffer, SnapshotFooterRecordJsonConverter.read(data, VERSION)));
            case KRAFT_VERSION:
                return text(MemoryRecords.withKRaftVersionRecord(offset, timestamp, epoch, buffer, KRaftVersionRecordJsonConverter.read(data, VERSION)));
            case KRAFT_VOTERS:
                return text(MemoryRecords.withVotersRecord(offset, timestamp, epoch, buffer, VotersRecordJsonConverter.read(data, VERSION)));
            default:
                EndTransactionMarker marker = new EndTransactionMarker(kind, command.get("coordinator_epoch").asInt());
                return text(MemoryRecords.withEndTransactionMarker(offset, timestamp, epoch, command.get("producer_id").asLong(),
                    (short) command.get("producer_epoch").asInt(), marker));
        }
    }

    static String text(MemoryRecords records) {
        return Base64.getEncoder().encodeToString(Describe.bytes(records.buffer()));
    }
}
