import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;

/** A broker's plug-in for telemetry: appends a line for each push to the file that `receiver.file` names. */
public class Receiver implements MetricsReporter, ClientTelemetryExporterProvider {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of((String) configs.get("receiver.file"));
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return (context, payload) -> {
            byte[] data = new byte[payload.data().remaining()];
            payload.data().duplicate().get(data);
            String line = String.join(" ", payload.clientInstanceId().toString(),
                context.authorizableRequestContext().clientId(), String.valueOf(context.pushIntervalMs()),
                String.valueOf(payload.isTerminating()), Base64.getEncoder().encodeToString(data));
            try {
                Files.write(file, (line + "\n").getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE,
                    StandardOpenOption.APPEND);
            } catch (IOException problem) {
                throw new IllegalStateException(problem);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
