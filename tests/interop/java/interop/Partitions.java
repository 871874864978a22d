package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** The partition directories opened so far, by handle, and the commands that go to one of them. */
final class Partitions {
    private final Map<Integer, Partition> open = new HashMap<>();
    private int next = 1;

    Map<String, Object> open(JsonNode command) throws Exception {
        Partition partition = new Partition(command);
        int handle = next++;
        open.put(handle, partition);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("log", handle);
        answer.put("state", partition.state());
        return answer;
    }

    Object run(String name, JsonNode command) throws Exception {
        int handle = command.get("log").asInt();
        Partition partition = open.get(handle);
        if (partition == null) {
            throw new IllegalArgumentException("no open log " + handle);
        }
        switch (name) {
            case "state": return partition.state();
            case "deep_state": return partition.deepState();
            case "times": return partition.times(command);
            case "offsets": return partition.offsets(command);
            case "read": return partition.read(command);
            case "digest": return partition.digest();
            case "append": return partition.append(command);
            case "fill": return partition.fill(command);
            case "roll": return partition.roll();
            case "truncate_to": return partition.truncateTo(command.get("offset").asLong());
            case "compact": return partition.compact(command);
            case "choose": return partition.chosen(command);
            case "close":
                open.remove(handle);
                partition.close(command.path("marker").asBoolean(false));
                return true;
            default: throw new IllegalArgumentException("unknown command " + name);
        }
    }
}
