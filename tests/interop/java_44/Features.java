import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What a client of 4.4 sees of transactions of version 2, of features, and of operators' calls: one line for each. */
public class Features {
    private static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            say("create", () -> admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get());
            transactions();
            say("offset", () -> admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata().get()
                .get(new TopicPartition("t", 0)).offset());
            features(admin);
            operators(admin, args);
        }
    }

    private static void transactions() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer("x")) {
            producer.initTransactions();
            for (int number = 0; number < 5; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("t", 0, null, ("v" + number).getBytes())).get();
                if (number == 2) {
                    OffsetAndMetadata offset = new OffsetAndMetadata(2, Optional.empty(), "m");
                    producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition("t", 0), offset), new ConsumerGroupMetadata("g"));
                }
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("t", 0, null, "fenced".getBytes())).get();
            try (KafkaProducer<byte[], byte[]> second = producer("x")) {
                second.initTransactions();
                say("fenced", () -> {
                    producer.commitTransaction();
                    return null;
                });
                second.beginTransaction();
                second.send(new ProducerRecord<>("t", 0, null, "second".getBytes())).get();
                second.commitTransaction();
            }
        }
        try (KafkaProducer<byte[], byte[]> empty = producer("empty")) {
            empty.initTransactions();
            empty.beginTransaction();
            empty.abortTransaction();
            empty.beginTransaction();
            empty.commitTransaction();
        }
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            TopicPartition partition = new TopicPartition("t", 0);
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            List<String> values = new ArrayList<>();
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(new String(record.value())));
            }
            System.out.println("committed " + values + " of " + end);
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String name) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", name);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void features(Admin admin) throws Exception {
        say("features", () -> levels(admin));
        for (FeatureUpdate.UpgradeType kind : List.of(
                FeatureUpdate.UpgradeType.UPGRADE, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)) {
            for (int level : new int[] {1, 2, 3}) {
                Map<String, FeatureUpdate> change = Map.of("transaction.version", new FeatureUpdate((short) level, kind));
                say("update " + kind + " " + level, () ->
                    admin.updateFeatures(change, new UpdateFeaturesOptions()).all().get());
            }
        }
        reaches(admin, 1);
        say("features", () -> levels(admin));
        FeatureUpdate back = new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE);
        say("back", () ->
            admin.updateFeatures(Map.of("transaction.version", back), new UpdateFeaturesOptions()).all().get());
        reaches(admin, 2);
        say("features", () -> levels(admin));
    }

    /** A broker answers an update before it has applied the new level itself. */
    private static void reaches(Admin admin, int level) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version").maxVersionLevel()
                != level && System.nanoTime() < end) {
            Thread.sleep(20);
        }
    }

    private static Object levels(Admin admin) throws Exception {
        TreeMap<String, Short> found = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
            .forEach((name, range) -> found.put(name, range.maxVersionLevel()));
        found.remove("share.version");
        found.remove("streams.version");
        return found;
    }

    private static void operators(Admin admin, String[] directories) throws Exception {
        TopicPartition partition = new TopicPartition("t", 0);
        say("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        say("reassign here", () -> admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        say("reassign there", () -> admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(2))))).all().get());
        say("unregister", () -> admin.unregisterBroker(77).all().get());
        say("token", () -> admin.createDelegationToken().delegationToken().get());
        say("tokens", () -> admin.describeDelegationToken().delegationTokens().get());
        say("metrics", () -> admin.listConfigResources(
            java.util.Set.of(org.apache.kafka.common.config.ConfigResource.Type.CLIENT_METRICS),
            new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get());
        say("delete groups", () -> admin.deleteConsumerGroups(List.of("none")).all().get());
        TopicPartitionReplica replica = new TopicPartitionReplica("t", 0, 1);
        say("to nowhere", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
        for (int turn = 0; turn < 2; turn++) {
            String other = directoriesOf(admin, false).contains(directories[1]) ? directories[2] : directories[1];
            say("move", () -> admin.alterReplicaLogDirs(Map.of(replica, other)).all().get());
            while (!directoriesOf(admin, true).isEmpty() || !directoriesOf(admin, false).contains(other)) {
                Thread.sleep(20);
            }
            System.out.println("moved " + directoriesOf(admin, false).size());
        }
    }

    private static List<String> directoriesOf(Admin admin, boolean isFuture) throws Exception {
        return admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).entrySet().stream()
            .filter(entry -> entry.getValue().replicaInfos().entrySet().stream().anyMatch(one ->
                one.getKey().equals(new TopicPartition("t", 0)) && one.getValue().isFuture() == isFuture))
            .map(Map.Entry::getKey).collect(Collectors.toList());
    }

    private static void say(String what, Callable<?> call) {
        try {
            System.out.println(what + " " + call.call());
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            System.out.println(what + " " + cause.getClass().getSimpleName() + " " + cause.getMessage());
        }
    }
}
