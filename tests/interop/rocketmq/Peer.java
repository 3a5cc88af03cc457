import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.store.MessageStore;

/**
 * Opens a store folder with a RocketMQ broker and does what it is told, a JSON object a line on standard input.
 *
 * Arguments: the store's folder, then RocketMQ's own broker properties as name=value. Answers are JSON objects, a line each on standard
 * output; the last one of each answer holds "done", or "error" with the reason. The first answer comes unasked, when the store is open.
 *
 * {"do":"topics"}, {"do":"create","topic":T,"queues":N}, {"do":"read","topic":T,"from":null}, {"do":"find","topic":T,"key":K},
 * {"do":"sendBack","topic":T,"queue":Q,"queueOffset":O}, {"do":"close"}: a clean shutdown,
 * {"do":"produce","topic":T,"queue":Q,"batch":false,"messages":[{"body":base64,"tag":…,"keys":…,"flag":0,"properties":{…},"delayLevel":0}]}
 * {"do":"load","topic":T,"bytes":N}: sends numbered messages to each queue until the process ends, and tells of each that was answered
 * {"do":"consume","group":G,"topic":T,"count":N}: reads on where the group's offsets stand, and commits
 * {"do":"config"}: what the broker's tables would write into their files
 * {"do":"store","records":[…]}: hands them to the broker's store itself, and tells of each what the store reads at its place
 */
public final class Peer {
    private static PrintStream answers;

    public static void main(String[] arguments) throws Exception {
        answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // RocketMQ prints a few lines of its own
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION)); // else it registers no topics at first
        Properties settings = new Properties();
        for (int at = 1; at < arguments.length; at++) {
            String[] parts = arguments[at].split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        int status = 0;
        try {
            serve(new LoopbackBroker(Path.of(arguments[0]), settings));
        } catch (Exception failure) {
            refuse(failure);
            status = 1;
        }
        Runtime.getRuntime().halt(status); // threads of a broker that refused its store would go on
    }

    private static void serve(LoopbackBroker broker) throws Exception {
        Client client = new Client(broker.nameserver);
        answer(state(broker.store()));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            if (asked.getString("do").equals("close")) {
                break;
            }
            try {
                obey(asked, client, broker);
                answer(state(broker.store()));
            } catch (Exception refusal) {
                refuse(refusal);
            }
        }
        Map<String, Object> last = state(broker.store());
        broker.close();
        answer(last);
    }

    private static void obey(JSONObject asked, Client client, LoopbackBroker broker) throws Exception {
        String topic = asked.getString("topic");
        catchUp(broker.store());
        switch (asked.getString("do")) {
            case "topics" -> client.topics(broker.address(), Peer::answer);
            case "read" -> client.read(topic, asked.getLong("from"), Peer::answer);
            case "consume" -> client.consume(asked.getString("group"), topic, asked.getIntValue("count"), Peer::answer);
            case "config" -> answer(broker.config());
            case "store" -> {
                for (JSONObject record : asked.getJSONArray("records").toJavaList(JSONObject.class)) {
                    answer(Stored.put(broker.store(), record));
                }
            }
            case "load" -> client.load(topic, asked.getIntValue("bytes"), Peer::answer);
            case "create" -> client.create(broker.address(), topic, asked.getIntValue("queues"));
            case "sendBack" -> client.sendBack(topic, asked.getIntValue("queue"), asked.getLongValue("queueOffset"));
            case "find" -> client.find(topic, asked.getString("key"), Peer::answer);
            case "produce" -> client.produce(
                topic, asked.getIntValue("queue"), asked.getBooleanValue("batch"), asked.getJSONArray("messages").toJavaList(JSONObject.class), Peer::answer);
            default -> throw new IllegalArgumentException("unknown command: " + asked);
        }
    }

    /** Waits until queues and index hold all of the log, half a minute at most: the broker builds them behind it, on a busy machine later. */
    private static void catchUp(MessageStore store) throws InterruptedException {
        for (int tries = 0; tries < 30_000 && store.dispatchBehindBytes() > 0; tries++) {
            Thread.sleep(1);
        }
    }

    private static Map<String, Object> state(MessageStore store) {
        return new TreeMap<>(Map.of("done", true, "start", store.getMinPhyOffset(), "end", store.getMaxPhyOffset()));
    }

    private static void refuse(Exception reason) {
        reason.printStackTrace();
        answer(Map.of("error", reason.toString()));
    }

    private static synchronized void answer(Map<String, Object> line) {
        answers.println(JSON.toJSONString(line, SerializerFeature.WriteMapNullValue));
    }
}
