package interop;

import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.server.util.FileLock;

/** Locks of data directories taken with the class a broker takes them with, held until dropped or the process ends. */
final class HeldLocks {
    private final Map<String, FileLock> held = new HashMap<>();

    /** True when the lock is ours now, false when another process has it. */
    boolean take(String file) throws IOException {
        FileLock lock = new FileLock(new File(file));
        if (!lock.tryLock()) {
            lock.unlockAndClose(); // not destroy, which deletes the file that another process has locked
            return false;
        }
        held.put(file, lock);
        return true;
    }

    /** Drops a lock as a broker that stops does, which deletes the file; true when there was one. */
    boolean drop(String file) throws IOException {
        FileLock lock = held.remove(file);
        if (lock == null) {
            return false;
        }
        lock.destroy();
        return true;
    }
}
