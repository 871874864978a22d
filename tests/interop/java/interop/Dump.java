package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

/** Runs the dump tool and keeps, byte for byte, what it prints. */
final class Dump {
    /** Thrown in place of ending the process, which the tool does after a usage error. */
    @SuppressWarnings("serial")
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            super("exit status " + status);
            this.status = status;
        }
    }

    private Dump() { }

    /** Fields: args (list), out and err (files to write). Answers {"status", "exception"}. */
    static Map<String, Object> run(JsonNode command) throws Exception {
        String[] args = Main.JSON.convertValue(command.get("args"), String[].class);
        PrintStream oldOut = System.out;
        PrintStream oldErr = System.err;
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", 0);
        answer.put("exception", null);
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        try (PrintStream out = to(command.get("out").asText()); PrintStream err = to(command.get("err").asText())) {
            System.setOut(out);
            System.setErr(err);
            DumpLogSegments.main(args);
        } catch (Exited exited) {
            answer.put("status", exited.status);
        } catch (Exception problem) {
            answer.put("exception", problem.toString());
        } finally {
            System.setOut(oldOut);
            System.setErr(oldErr);
            Exit.resetExitProcedure();
        }
        return answer;
    }

    private static PrintStream to(String file) throws Exception {
        return new PrintStream(new BufferedOutputStream(new FileOutputStream(file), 1 << 18), false, StandardCharsets.UTF_8);
    }
}
