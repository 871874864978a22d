package clients;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Clients with settings for a test, and what every operation does with them. */
final class Kit implements AutoCloseable {
    static final long LIMIT_MS = 120_000;

    final String topic;
    final Admin admin;
    private final String bootstrap;
    private final long end = System.currentTimeMillis() + LIMIT_MS;

    Kit(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.admin = Admin.create(settings());
    }

    @Override
    public void close() {
        admin.close(Duration.ofSeconds(2));
    }

    Map<String, Object> settings(Object... more) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        all.put("request.timeout.ms", 30_000);
        for (int at = 0; at < more.length; at += 2) {
            all.put((String) more[at], more[at + 1]);
        }
        return all;
    }

    long left() {
        long left = end - System.currentTimeMillis();
        if (left <= 0) {
            throw new IllegalStateException("took longer than " + LIMIT_MS + " ms");
        }
        return left;
    }

    <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(left(), TimeUnit.MILLISECONDS);
    }

    /** Waits until it is so: a broker applies a change a moment after its answer. */
    void until(Callable<Boolean> isSo) throws Exception {
        while (!isSo.call()) {
            left();
            Thread.sleep(20);
        }
    }

    TopicPartition at(int partition) {
        return new TopicPartition(topic, partition);
    }

    void create(int partitions) throws Exception {
        get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
        until(() -> get(admin.listTopics().names()).contains(topic));
    }

    KafkaProducer<byte[], byte[]> producer(Object... more) {
        Map<String, Object> all = settings(more);
        all.put("max.block.ms", 30_000);
        all.put("delivery.timeout.ms", 60_000);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Object... more) {
        Map<String, Object> all = settings("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        all.put("fetch.max.wait.ms", 100);
        all.putAll(settings(more));
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Sends records "key-n", "value-n" of the times 1000, 2000, ... and waits for them. */
    void send(KafkaProducer<byte[], byte[]> producer, Integer partition, int first, int count) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int n = first; n < first + count; n++) {
            sent.add(producer.send(new ProducerRecord<>(topic, partition, 1000L * (n + 1), bytes("key-" + n), bytes("value-" + n))));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get(left(), TimeUnit.MILLISECONDS);
        }
    }

    List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        while (found.size() < count) {
            left();
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
        }
        same(count, found.size());
        return found;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void same(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new IllegalStateException("expected " + expected + ", found " + found);
        }
    }

    static void holds(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException("not so: " + what);
        }
    }
}
