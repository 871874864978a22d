package peer;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.Locale;

/** Runs a piece of work for a number of rounds after as many to warm up, and prints the medians. */
final class Measure {
    /** One timed round: the work asks whether to go on and counts what it did. */
    static final class Round {
        private static final int ASK_CLOCK_EVERY = 16;
        private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

        final int number;
        private final long limit;
        private long wallStart;
        private long cpuStart;
        private long wallNs;
        private long cpuNs;
        private long done;
        private int asked;

        Round(int number, double seconds) {
            this.number = number;
            limit = (long) (seconds * 1e9);
            begin();
        }

        /** Restarts the timed part: what came before was preparation. */
        void begin() {
            cpuStart = THREADS.getCurrentThreadCpuTime();
            wallStart = System.nanoTime();
        }

        boolean goesOn() {
            return ++asked % ASK_CLOCK_EVERY != 0 || System.nanoTime() - wallStart < limit;
        }

        int asked() {
            return asked;
        }

        void count(long n) {
            done += n;
        }

        /** Ends the timed part; called again it does nothing, so that cleaning up after it is free. */
        void stop() {
            if (wallNs == 0) {
                wallNs = System.nanoTime() - wallStart;
                cpuNs = Math.max(1, THREADS.getCurrentThreadCpuTime() - cpuStart);
            }
        }
    }

    interface Work {
        void run(Round round) throws Exception;
    }

    private final double seconds;
    private final int rounds;

    Measure(double seconds, int rounds) {
        this.seconds = seconds;
        this.rounds = rounds;
    }

    /** The same with fewer rounds, for work that lasts. */
    Measure atMost(int most) {
        return new Measure(seconds, Math.min(rounds, most));
    }

    void rate(String name, String unit, Work work) throws Exception {
        print(name, unit, work, 1e9, false);
    }

    void nanoseconds(String name, Work work) throws Exception {
        print(name, "ns", work, 1, true);
    }

    /** One round alone, of work that cannot be done twice. */
    void once(String name, String unit, Work work) throws Exception {
        Round round = new Round(0, seconds);
        work.run(round);
        round.stop();
        tell(name, unit, 1e9 * round.done / round.wallNs, 1e9 * round.done / round.cpuNs);
    }

    private void print(String name, String unit, Work work, double scale, boolean inverse) throws Exception {
        double[] wall = new double[rounds];
        double[] cpu = new double[rounds];
        for (int number = -rounds; number < rounds; number++) {
            Round round = new Round(number, seconds);
            work.run(round);
            round.stop();
            if (number >= 0) {
                wall[number] = inverse ? (double) round.wallNs / round.done : scale * round.done / round.wallNs;
                cpu[number] = inverse ? (double) round.cpuNs / round.done : scale * round.done / round.cpuNs;
            }
        }
        tell(name, unit, median(wall), median(cpu));
    }

    private static void tell(String name, String unit, double value, double cpu) {
        System.out.printf(Locale.ROOT, "{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"cpu\": %.6g}%n", name, value, unit, cpu);
        System.out.flush();
    }

    private static double median(double[] values) {
        Arrays.sort(values);
        return values[values.length / 2];
    }
}
