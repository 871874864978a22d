package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Answers commands about Kafka's own storage classes, one JSON object a line: {"do": name, ...} in,
 * {"answer": ...} or {"error": {"class", "message"}} out.
 *
 * <p>Standard output carries answers only: anything Kafka prints is sent to standard error. The
 * process ends, and drops its locks, when standard input closes.
 */
public final class Main {
    static final ObjectMapper JSON = new ObjectMapper();

    private final Partitions partitions = new Partitions();
    private final HeldLocks locks = new HeldLocks();

    private Main() { }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Main main = new Main();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.write((JSON.writeValueAsString(main.respond(line)) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        System.exit(0);
    }

    private Map<String, Object> respond(String line) {
        Map<String, Object> response = new LinkedHashMap<>();
        try {
            response.put("answer", run(JSON.readTree(line)));
        } catch (Throwable problem) {
            response.put("error", Map.of("class", problem.getClass().getName(), "message", String.valueOf(problem.getMessage())));
        }
        return response;
    }

    private Object run(JsonNode command) throws Exception {
        String name = command.get("do").asText();
        switch (name) {
            case "dump": return Dump.run(command);
            case "lock": return locks.take(command.get("file").asText());
            case "unlock": return locks.drop(command.get("file").asText());
            case "create_topic": return Client.createTopic(command);
            case "topics": return Client.topics(command);
            case "produce": return Client.produce(command);
            case "consume": return Client.consume(command);
            case "topic_settings": return Client.topicSettings(command);
            case "consume_all": return Client.consumeAll(command);
            case "control_batch": return Control.build(command);
            case "build_set": return Sets.build(command);
            case "read_set": return Sets.read(command);
            case "raw_marker": return Sets.rawMarker(command);
            case "validate": return Validation.run(command);
            case "offset_map": return OffsetMaps.run(command);
            case "open": return partitions.open(command);
            default: return partitions.run(name, command);
        }
    }
}
