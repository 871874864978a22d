package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What a broker's users do: make a topic, list topics, produce, consume. Field of all: bootstrap. */
final class Client {
    private static final long DEADLINE_MS = 60_000;

    private Client() { }

    /** Fields: topic, config {dotted: text}. Makes a topic of one partition. */
    static boolean createTopic(JsonNode command) throws Exception {
        Map<String, String> config = new HashMap<>();
        command.path("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        NewTopic topic = new NewTopic(command.get("topic").asText(), Optional.of(1), Optional.empty()).configs(config);
        try (Admin admin = Admin.create(settings(command))) {
            admin.createTopics(List.of(topic)).all().get();
        }
        return true;
    }

    static List<String> topics(JsonNode command) throws Exception {
        try (Admin admin = Admin.create(settings(command))) {
            return new ArrayList<>(admin.listTopics().names().get());
        }
    }

    /** Fields: topic, prefix, count: values prefix + number, sent to partition 0 and awaited; answers the last offset. */
    static long produce(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        String prefix = command.get("prefix").asText();
        long last = -1;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings(command), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < command.get("count").asInt(); i++) {
                last = producer.send(new ProducerRecord<>(topic, 0, null, (prefix + i).getBytes())).get().offset();
            }
        }
        return last;
    }

    /** Field: topic. All records of partition 0, as {@link Describe} shows them. */
    static List<Object> consume(JsonNode command) {
        TopicPartition partition = new TopicPartition(command.get("topic").asText(), 0);
        List<Object> records = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(command), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("stuck at offset " + consumer.position(partition) + " of " + end);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    records.add(Describe.record(record));
                }
            }
        }
        return records;
    }

    /** Field: topics. The settings of each that are its own. */
    static Map<String, Map<String, String>> topicSettings(JsonNode command) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        command.get("topics").forEach(one -> resources.add(new ConfigResource(ConfigResource.Type.TOPIC, one.asText())));
        Map<String, Map<String, String>> found = new HashMap<>();
        try (Admin admin = Admin.create(settings(command))) {
            admin.describeConfigs(resources).all().get().forEach((resource, config) -> {
                Map<String, String> own = found.computeIfAbsent(resource.name(), name -> new HashMap<>());
                for (ConfigEntry entry : config.entries()) {
                    if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                        own.put(entry.name(), entry.value());
                    }
                }
            });
        }
        return found;
    }

    /** Fields: partitions [[topic, number]], isolation. All records of each, by "topic-number", to the level's end. */
    static Map<String, List<Object>> consumeAll(JsonNode command) {
        Map<TopicPartition, Long> ends = new HashMap<>();
        Map<String, List<Object>> records = new HashMap<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode one : command.get("partitions")) {
            partitions.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt()));
        }
        Map<String, Object> settings = settings(command);
        settings.put("isolation.level", command.get("isolation").asText());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            ends.putAll(consumer.endOffsets(partitions));
            partitions.forEach(one -> records.put(one.toString(), new ArrayList<>()));
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the ends " + ends + " were not reached");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    records.get(record.topic() + "-" + record.partition()).add(Describe.record(record));
                }
            }
        }
        return records;
    }

    private static Map<String, Object> settings(JsonNode command) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", command.get("bootstrap").asText());
        settings.put("default.api.timeout.ms", "30000");
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("enable.auto.commit", "false");
        return settings;
    }
}
