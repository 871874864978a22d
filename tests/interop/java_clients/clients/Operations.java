package clients;

import static clients.Kit.bytes;
import static clients.Kit.holds;
import static clients.Kit.same;

import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What the producer and the consumer do. */
final class Operations {
    interface Operation {
        void run(Kit kit) throws Exception;
    }

    private static final Map<String, Operation> ALL = new LinkedHashMap<>();

    static {
        for (String acks : List.of("0", "1", "all")) {
            ALL.put("acks_" + acks, kit -> acks(kit, acks));
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            ALL.put("codec_" + codec, kit -> codec(kit, codec));
        }
        ALL.put("headers_and_times", Operations::headersAndTimes);
        ALL.put("idempotent", Operations::idempotent);
        ALL.put("transactions", Operations::transactions);
        ALL.put("transactional_offsets", Operations::transactionalOffsets);
        ALL.put("offsets", Operations::offsets);
        ALL.put("group_rebalance", kit -> rebalance(kit, "session.timeout.ms", 20_000, "heartbeat.interval.ms", 300));
        ALL.put("group_848", kit -> rebalance(kit, "group.protocol", "consumer"));
        ALL.put("group_static", Operations::staticMember);
        ALL.put("group_commit_and_reset", Operations::commitAndReset);
        ALL.putAll(AdminOperations.ALL);
    }

    private Operations() { }

    static void run(String name, String bootstrap, String topic) throws Exception {
        Operation operation = ALL.get(name);
        holds(operation != null, "there is an operation " + name);
        try (Kit kit = new Kit(bootstrap, topic)) {
            operation.run(kit);
        }
    }

    private static void acks(Kit kit, String acks) throws Exception {
        kit.create(2);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer("acks", acks, "enable.idempotence", "false")) {
            kit.send(producer, null, 0, 50);
        }
        all(kit, 50);
    }

    private static void codec(Kit kit, String codec) throws Exception {
        kit.create(2);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer("compression.type", codec, "linger.ms", 20)) {
            kit.send(producer, null, 0, 50);
        }
        all(kit, 50);
    }

    private static void all(Kit kit, int count, Object... settings) throws Exception {
        Set<String> expected = new TreeSet<>();
        for (int n = 0; n < count; n++) {
            expected.add("value-" + n);
        }
        Set<String> found = new TreeSet<>();
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer(settings)) {
            consumer.assign(List.of(kit.at(0), kit.at(1)));
            consumer.seekToBeginning(consumer.assignment());
            kit.take(consumer, count).forEach(one -> found.add(new String(one.value())));
        }
        same(expected, found);
    }

    private static void headersAndTimes(Kit kit) throws Exception {
        kit.create(1);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer()) {
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(kit.topic, 0, 1234L, null, (byte[]) null);
            record.headers().add("a", bytes("1")).add("a", null).add("", new byte[0]);
            producer.send(record).get();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer()) {
            consumer.assign(List.of(kit.at(0)));
            ConsumerRecord<byte[], byte[]> one = kit.take(consumer, 1).get(0);
            same(1234L, one.timestamp());
            holds(one.key() == null && one.value() == null, "key and value are null");
            same("a,a,", String.join(",", Arrays.stream(one.headers().toArray()).map(header -> header.key()).toList()));
            same(0, one.headers().toArray()[2].value().length);
            holds(one.headers().toArray()[1].value() == null, "a header without a value");
        }
    }

    private static void idempotent(Kit kit) throws Exception {
        kit.create(2);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer("enable.idempotence", "true", "batch.size", 200)) {
            kit.send(producer, null, 0, 300);
        }
        all(kit, 300);
    }

    private static void transactions(Kit kit) throws Exception {
        kit.create(2);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer("transactional.id", kit.topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            kit.send(producer, null, 0, 10);
            producer.commitTransaction();
            producer.beginTransaction();
            kit.send(producer, null, 90, 10);
            producer.abortTransaction();
            producer.beginTransaction();
            kit.send(producer, null, 10, 10);
            producer.commitTransaction();
        }
        all(kit, 20, "isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer("isolation.level", "read_uncommitted")) {
            consumer.assign(List.of(kit.at(0), kit.at(1)));
            kit.take(consumer, 30);
        }
        // an earlier producer of the same id is fenced
        try (KafkaProducer<byte[], byte[]> first = kit.producer("transactional.id", kit.topic + "-f");
             KafkaProducer<byte[], byte[]> second = kit.producer("transactional.id", kit.topic + "-f")) {
            first.initTransactions();
            second.initTransactions();
            try {
                first.beginTransaction();
                kit.send(first, 0, 0, 1);
                first.commitTransaction();
                holds(false, "the first producer is fenced");
            } catch (Exception expected) {
                holds(expected.toString().contains("Fenced") || expected.toString().contains("InvalidProducerEpoch"), expected.toString());
            }
        }
    }

    private static void transactionalOffsets(Kit kit) throws Exception {
        kit.create(2);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer()) {
            kit.send(producer, 0, 0, 4);
        }
        try (KafkaProducer<byte[], byte[]> producer = kit.producer("transactional.id", kit.topic);
             KafkaConsumer<byte[], byte[]> consumer = kit.consumer("group.id", kit.topic)) {
            consumer.subscribe(List.of(kit.topic));
            kit.take(consumer, 4);
            producer.initTransactions();
            producer.beginTransaction();
            kit.send(producer, 1, 10, 2);
            producer.sendOffsetsToTransaction(Map.of(kit.at(0), new OffsetAndMetadata(3)), consumer.groupMetadata());
            producer.commitTransaction();
            same(3L, consumer.committed(Set.of(kit.at(0))).get(kit.at(0)).offset());
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(kit.at(0), new OffsetAndMetadata(4)), consumer.groupMetadata());
            producer.abortTransaction();
            same(3L, consumer.committed(Set.of(kit.at(0))).get(kit.at(0)).offset());
        }
    }

    private static void offsets(Kit kit) throws Exception {
        kit.create(1);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer()) {
            kit.send(producer, 0, 0, 10);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer()) {
            same(10L, consumer.endOffsets(List.of(kit.at(0))).get(kit.at(0)));
            same(0L, consumer.beginningOffsets(List.of(kit.at(0))).get(kit.at(0)));
            same(4L, consumer.offsetsForTimes(Map.of(kit.at(0), 4500L)).get(kit.at(0)).offset());
            holds(consumer.offsetsForTimes(Map.of(kit.at(0), 99_999_999L)).get(kit.at(0)) == null, "no such time");
        }
    }

    private static void rebalance(Kit kit, Object... protocol) throws Exception {
        kit.create(2);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer()) {
            kit.send(producer, 0, 0, 5);
            kit.send(producer, 1, 5, 5);
        }
        Object[] settings = Arrays.copyOf(protocol, protocol.length + 2);
        settings[protocol.length] = "group.id";
        settings[protocol.length + 1] = kit.topic;
        try (KafkaConsumer<byte[], byte[]> first = kit.consumer(settings)) {
            first.subscribe(List.of(kit.topic));
            kit.take(first, 10);
            first.commitSync();
            KafkaConsumer<byte[], byte[]> second = kit.consumer(settings);
            Thread polls = new Thread(() -> {
                second.subscribe(List.of(kit.topic));
                try {
                    while (!Thread.currentThread().isInterrupted()) {
                        second.poll(Duration.ofMillis(50));
                        assigned = second.assignment().size();
                    }
                } catch (org.apache.kafka.common.errors.InterruptException end) {
                    Thread.interrupted();
                }
                second.close(Duration.ofSeconds(3));
            });
            assigned = 0;
            polls.start();
            try {
                while (first.assignment().size() != 1 || assigned != 1) {
                    kit.left();
                    first.poll(Duration.ofMillis(50));
                }
            } finally {
                polls.interrupt();
            }
            while (first.assignment().size() != 2) {
                kit.left();
                first.poll(Duration.ofMillis(50));
            }
            polls.join(kit.left());
            for (int partition : new int[] {0, 1}) {
                same(5L, first.committed(Set.of(kit.at(partition))).get(kit.at(partition)).offset());
            }
        }
    }

    private static volatile int assigned;

    private static void staticMember(Kit kit) throws Exception {
        kit.create(1);
        Object[] settings = {"group.id", kit.topic, "group.instance.id", "one", "session.timeout.ms", 20_000};
        String member;
        int generation;
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer(settings)) {
            joined(kit, consumer);
            generation = consumer.groupMetadata().generationId();
            member = consumer.groupMetadata().memberId();
        }
        // it comes back within its session: no rebalance, another member id
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer(settings)) {
            joined(kit, consumer);
            same(generation, consumer.groupMetadata().generationId());
            holds(!member.equals(consumer.groupMetadata().memberId()), "the member id is another");
        }
    }

    private static void joined(Kit kit, KafkaConsumer<byte[], byte[]> consumer) {
        consumer.subscribe(List.of(kit.topic));
        while (consumer.assignment().isEmpty()) {
            kit.left();
            consumer.poll(Duration.ofMillis(100));
        }
    }

    private static void commitAndReset(Kit kit) throws Exception {
        kit.create(1);
        TopicPartition at = kit.at(0);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer()) {
            kit.send(producer, 0, 0, 10);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer("group.id", kit.topic, "max.poll.records", 4)) {
            consumer.subscribe(List.of(kit.topic));
            same(0L, kit.take(consumer, 4).get(0).offset());
            consumer.commitSync(Map.of(at, new OffsetAndMetadata(4, "halfway")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer("group.id", kit.topic)) {
            consumer.subscribe(List.of(kit.topic));
            same(4L, kit.take(consumer, 6).get(0).offset());
            same("halfway", consumer.committed(Set.of(at)).get(at).metadata());
            consumer.seek(at, 1);
            same(1L, kit.take(consumer, 9).get(0).offset());
            // where there is no such offset the reset policy says where to go on
            consumer.seek(at, 5000);
            same(0L, kit.take(consumer, 10).get(0).offset());
        }
    }
}
