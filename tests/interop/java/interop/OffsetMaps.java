package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The offset map of another version of Kafka, whose classes are loaded from jars of their own. */
final class OffsetMaps {
    private OffsetMaps() { }

    /** Fields: jars, memory, put (keys, each with its position as offset), get (keys). */
    static Map<String, Object> run(JsonNode command) throws Exception {
        try (URLClassLoader loader = new URLClassLoader(places(command.get("jars")), ClassLoader.getPlatformClassLoader())) {
            Class<?> type = loader.loadClass("org.apache.kafka.storage.internals.log.SkimpyOffsetMap");
            Object map = type.getConstructor(int.class).newInstance(command.get("memory").asInt());
            Method put = type.getMethod("put", ByteBuffer.class, long.class);
            Method get = type.getMethod("get", ByteBuffer.class);
            Method rate = type.getMethod("collisionRate");
            long offset = 0;
            for (JsonNode key : command.get("put")) {
                put.invoke(map, ByteBuffer.wrap(key.binaryValue()), offset++);
            }
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("version", loader.loadClass("org.apache.kafka.common.utils.AppInfoParser").getMethod("getVersion").invoke(null));
            result.put("slots", type.getMethod("slots").invoke(map));
            result.put("size", type.getMethod("size").invoke(map));
            result.put("rate_of_puts", rate.invoke(map));
            List<Object> found = new ArrayList<>();
            for (JsonNode key : command.get("get")) {
                found.add(get.invoke(map, ByteBuffer.wrap(key.binaryValue())));
            }
            result.put("found", found);
            result.put("rate", rate.invoke(map));
            return result;
        }
    }

    /** The given jars, and behind them what this process has, for the logging that they call. */
    private static URL[] places(JsonNode jars) throws Exception {
        List<URL> places = new ArrayList<>();
        for (JsonNode jar : jars) {
            places.add(new File(jar.asText()).toURI().toURL());
        }
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            places.add(new File(path).toURI().toURL());
        }
        return places.toArray(new URL[0]);
    }
}
