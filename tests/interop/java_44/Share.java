import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The life of a share group with the clients of 4.4, printed line by line: address. */
public class Share {
    private static final long LIMIT_NS = 120_000_000_000L;

    public static void main(String[] args) throws Exception {
        Map<String, Object> address = Map.of("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(address)) {
            admin.createTopics(List.of(new NewTopic("java", 1, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "jobs");
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET))))
                .all().get();
            while (!admin.describeConfigs(List.of(group)).all().get().get(group).get(earliest.name()).value().equals(earliest.value())) {
                Thread.sleep(20); // the broker has it a moment later
            }
            produce(address);
            consume(address, admin);
            afterwards(admin);
        }
    }

    private static void produce(Map<String, Object> address) {
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(address, text, text)) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>("java", "job " + number));
            }
        }
    }

    private static void consume(Map<String, Object> address, Admin admin) throws Exception {
        Map<String, Object> settings = new TreeMap<>(address);
        settings.put("group.id", "jobs");
        settings.put("share.acknowledgement.mode", "explicit");
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of("java"));
            Map<Long, String> seen = new TreeMap<>();
            take(consumer, seen, 10, Share::first);
            System.out.println("first " + seen);
            System.out.println("lock " + consumer.acquisitionLockTimeoutMs().orElse(-1));
            seen.clear();
            take(consumer, seen, 2, record -> AcknowledgeType.ACCEPT);
            System.out.println("again " + seen);
            var described = admin.describeShareGroups(List.of("jobs")).all().get().get("jobs");
            System.out.println("group " + described.groupState() + " " + described.members().size());
            for (var member : described.members()) {
                System.out.println("member " + member.assignment().topicPartitions());
            }
        }
    }

    private interface Decision {
        AcknowledgeType of(ConsumerRecord<String, String> record);
    }

    private static AcknowledgeType first(ConsumerRecord<String, String> record) {
        return switch ((int) record.offset()) {
            case 3, 4 -> AcknowledgeType.RELEASE;
            case 5 -> AcknowledgeType.REJECT;
            default -> AcknowledgeType.ACCEPT;
        };
    }

    private static void take(
            KafkaShareConsumer<String, String> consumer, Map<Long, String> seen, int wanted, Decision decision) {
        long begin = System.nanoTime();
        while (seen.size() < wanted && System.nanoTime() - begin < LIMIT_NS) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                seen.put(record.offset(), record.value() + " x" + record.deliveryCount().orElse((short) 0));
                consumer.acknowledge(record, decision.of(record));
            }
            consumer.commitSync().values().forEach(error -> error.ifPresent(it -> System.out.println("error " + it)));
        }
    }

    private static void afterwards(Admin admin) throws Exception {
        Map<String, ListShareGroupOffsetsSpec> all = Map.of("jobs", new ListShareGroupOffsetsSpec());
        System.out.println("offsets " + admin.listShareGroupOffsets(all).all().get());
        Set<String> listed = new TreeSet<>();
        for (var one : admin.listGroups(ListGroupsOptions.forShareGroups()).all().get()) {
            listed.add(one.groupId() + " " + one.groupState().get() + " " + one.type().get());
        }
        System.out.println("listed " + listed);
        TopicPartition partition = new TopicPartition("java", 0);
        admin.alterShareGroupOffsets("jobs", Map.of(partition, 4L)).all().get();
        System.out.println("altered " + admin.listShareGroupOffsets(all).all().get());
        admin.deleteShareGroupOffsets("jobs", Set.of("java")).all().get();
        System.out.println("without offsets " + admin.listShareGroupOffsets(all).all().get());
        admin.deleteShareGroups(List.of("jobs")).all().get();
        System.out.println("deleted " + admin.listGroups(ListGroupsOptions.forShareGroups()).all().get());
    }
}
