import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer of 4.4 that pushes its metrics: address; prints its client instance id. */
public class Pushing {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "client.id", "of Java");
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>("t", "value".getBytes())).get();
            System.out.println(producer.clientInstanceId(Duration.ofSeconds(30)));
            Thread.sleep(1000);
        }
    }
}
