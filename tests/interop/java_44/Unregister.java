import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;

/** Unregister a controller at a broker of 4.4: address, number. */
public class Unregister {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        try (Admin admin = Admin.create(settings)) {
            admin.unregisterController(Integer.parseInt(args[1])).all().get();
        }
    }
}
