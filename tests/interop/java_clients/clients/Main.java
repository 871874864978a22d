package clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * One JVM that is many clients: operations of the Java clients, and Kafka's command line tools, one JSON object a
 * line: {"operation": name, "bootstrap", "topic"} or {"tool": class, "arguments", "input"} in, {"error", "output",
 * "status"} out. Compiled against the version of Kafka that it runs with.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Thrown where a tool would end the process; a tool may catch it and want to end the process again. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super("the process would end", null, false, false);
        }
    }

    private static Integer firstStatus;

    /** What the tool that runs has said. Scala keeps the output that it first saw, so it is never another one. */
    private static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();

    private Main() { }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream kept = new PrintStream(SAID, true, StandardCharsets.UTF_8);
        System.setOut(kept);
        System.setErr(kept);
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.write((JSON.writeValueAsString(answer(JSON.readTree(line))) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** What the tool that runs wants done as the process ends. */
    private static final List<Runnable> HOOKS = new ArrayList<>();

    /** Keeps a tool from ending the process. The class that tools end it by is in another package since 4.4. */
    private static void preventEnds() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        replace(exit, "setExitProcedure", arguments -> end((Integer) arguments[0]));
        replace(exit, "setHaltProcedure", arguments -> end((Integer) arguments[0]));
        replace(exit, "setShutdownHookAdder", arguments -> HOOKS.add((Runnable) arguments[1]));
    }

    private static void replace(Class<?> exit, String setter, Consumer<Object[]> instead) throws ReflectiveOperationException {
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, called, arguments) -> {
                    instead.accept(arguments);
                    return null;
                }));
            }
        }
    }

    private static void end(int status) {
        if (firstStatus == null) {
            firstStatus = status;
        }
        throw new Ended();
    }

    private static Map<String, Object> answer(JsonNode command) {
        Map<String, Object> found = new LinkedHashMap<>();
        try {
            if (command.has("tool")) {
                found.putAll(tool(command));
            } else {
                Operations.run(command.get("operation").asText(), command.get("bootstrap").asText(), command.get("topic").asText());
            }
        } catch (Throwable problem) {
            StringBuilder text = new StringBuilder();
            for (Throwable one = problem; one != null; one = one.getCause()) {
                text.append(one).append("; ");
            }
            StackTraceElement[] trace = problem.getStackTrace();
            for (StackTraceElement step : trace) {
                if (step.getClassName().startsWith("clients.")) {
                    text.append("at ").append(step).append(' ');
                }
            }
            found.put("error", text.toString());
        }
        return found;
    }

    private static Map<String, Object> tool(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("arguments").forEach(one -> arguments.add(one.asText()));
        java.io.InputStream input = System.in;
        preventEnds();
        firstStatus = null;
        SAID.reset();
        HOOKS.clear();
        try {
            System.setIn(new ByteArrayInputStream(command.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            Class.forName(command.get("tool").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (java.lang.reflect.InvocationTargetException problem) {
            if (firstStatus == null) {
                throw problem;
            }
        } finally {
            System.setIn(input);
            HOOKS.forEach(Runnable::run);
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("status", firstStatus == null ? 0 : firstStatus);
        found.put("output", SAID.toString(StandardCharsets.UTF_8));
        return found;
    }
}
