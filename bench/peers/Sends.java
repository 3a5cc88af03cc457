import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends when it is told to: reads "callers batch calls" from standard input, lets that many threads make that many synchronous calls of
 * that many messages of 1 KiB each, and prints the seconds of all and the milliseconds of each call. Any status but SEND_OK ends it.
 *
 * Arguments: the nameserver's address, the master's.
 */
public final class Sends {
    private static final String TOPIC = "lines";
    private static final int BODY_BYTES = 1024;
    private static final int QUEUES = 8;

    private Sends() {
    }

    public static void main(String[] args) {
        try {
            serve(args);
        } catch (Exception problem) {
            problem.printStackTrace();
            System.exit(1); // the client's threads would keep the process alive
        }
    }

    private static void serve(String[] args) throws Exception {
        makeTopic(args[0], args[1]);
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(args[0]);
        producer.setVipChannelEnabled(false);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        System.out.println("ready");
        Scanner orders = new Scanner(System.in);
        while (orders.hasNextInt()) {
            System.out.println(run(producer, orders.nextInt(), orders.nextInt(), orders.nextInt()));
        }
        producer.shutdown();
    }

    private static String run(DefaultMQProducer producer, int callers, int batch, int calls) throws InterruptedException {
        long[][] took = new long[callers][calls];
        AtomicInteger refused = new AtomicInteger();
        Thread[] threads = new Thread[callers];
        long began = System.nanoTime();
        for (int caller = 0; caller < callers; caller++) {
            long[] mine = took[caller];
            byte[] body = new byte[BODY_BYTES];
            new Random(caller).nextBytes(body);
            threads[caller] = new Thread(() -> {
                for (int call = 0; call < calls; call++) {
                    long start = System.nanoTime();
                    try {
                        if (send(producer, body, batch).getSendStatus() != SendStatus.SEND_OK) {
                            refused.incrementAndGet();
                        }
                    } catch (Exception problem) {
                        System.err.println(problem);
                        refused.incrementAndGet();
                    }
                    mine[call] = System.nanoTime() - start;
                }
            });
            threads[caller].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        if (refused.get() > 0) {
            System.err.println(refused.get() + " calls were not SEND_OK");
            System.exit(1);
        }
        StringBuilder line = new StringBuilder().append(seconds);
        for (long[] mine : took) {
            for (long each : mine) {
                line.append(' ').append(each / 1e6);
            }
        }
        return line.toString();
    }

    private static SendResult send(DefaultMQProducer producer, byte[] body, int batch) throws Exception {
        if (batch == 1) {
            return producer.send(new Message(TOPIC, body));
        }
        List<Message> messages = new ArrayList<>(batch);
        for (int each = 0; each < batch; each++) {
            messages.add(new Message(TOPIC, body));
        }
        return producer.send(messages);
    }

    private static void makeTopic(String nameserver, String master) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt("bench_admin");
        admin.setNamesrvAddr(nameserver);
        admin.setVipChannelEnabled(false);
        admin.start();
        TopicConfig config = new TopicConfig(TOPIC);
        config.setReadQueueNums(QUEUES);
        config.setWriteQueueNums(QUEUES);
        admin.createAndUpdateTopicConfig(master, config);
        for (int look = 0; look < 300; look++) {
            try {
                admin.examineTopicRouteInfo(TOPIC);
                break;
            } catch (Exception unknownYet) {
                Thread.sleep(100);
            }
        }
        admin.shutdown();
    }
}
