package interop;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.server.util.Scheduler;

/**
 * Background work done in the foreground: tasks due at once (the flush after a roll) wait for {@link #drain},
 * tasks due later and repeating ones (deletion of files, expiry of producers) never run, so that what a command
 * leaves behind depends on the command alone.
 */
final class InlineScheduler implements Scheduler {
    private static final class Unscheduled extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        @Override public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override public int compareTo(Delayed other) {
            return 0;
        }
    }

    private final Queue<Runnable> due = new ArrayDeque<>();

    @Override public void startup() { }

    @Override public void shutdown() { }

    @Override public void resizeThreadPool(int size) { }

    @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (delayMs <= 0 && periodMs < 0) {
            due.add(task);
        }
        return new Unscheduled();
    }

    void drain() {
        while (!due.isEmpty()) {
            due.poll().run();
        }
    }
}
