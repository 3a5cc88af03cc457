import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** RocketMQ's Java client; everything it is told it hands on as maps. Ends with its process. */
final class Client {
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-reader");
    private final DefaultMQProducer producer = new DefaultMQProducer("interop-writer");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt("interop-admin");

    private final String nameserver;

    Client(String nameserver) throws MQClientException {
        this.nameserver = nameserver;
        consumer.setNamesrvAddr(nameserver);
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(15_000);
        admin.setNamesrvAddr(nameserver);
        consumer.start();
        producer.start();
        admin.start();
    }

    /** Every topic that the broker knows. */
    void topics(String broker, Consumer<Map<String, Object>> out) throws Exception {
        for (var topic : new TreeMap<>(admin.getAllTopicConfig(broker, 10_000).getTopicConfigTable()).values()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("topic", topic.getTopicName());
            line.put("readQueues", topic.getReadQueueNums());
            line.put("writeQueues", topic.getWriteQueueNums());
            line.put("permission", topic.getPerm());
            line.put("order", topic.isOrder());
            out.accept(line);
        }
    }

    /** Makes a topic, and waits until it can be sent to. */
    void create(String broker, String topic, int queues) throws Exception {
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, queues, queues, PermName.PERM_READ | PermName.PERM_WRITE));
        for (int tries = 0; ; tries++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException notYet) {
                if (tries == 200) {
                    throw notYet;
                }
                Thread.sleep(20);
            }
        }
    }

    /** Every message of a topic from the minimum of each queue on, or from `from`, as a consumer gets them: where it finds none it goes on. */
    void read(String topic, Long from, Consumer<Map<String, Object>> out) throws Exception {
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
            long at = from == null ? consumer.minOffset(queue) : from;
            long end = consumer.maxOffset(queue);
            while (at < end) {
                PullResult page = consumer.pull(queue, "*", at, 32);
                boolean found = page.getPullStatus() == PullStatus.FOUND;
                if (!found && (page.getPullStatus() != PullStatus.NO_MATCHED_MSG || page.getNextBeginOffset() <= at)) {
                    throw new IllegalStateException(queue + " at " + at + " of " + end + ": " + page);
                }
                if (found) {
                    page.getMsgFoundList().forEach(message -> out.accept(told(message)));
                }
                at = page.getNextBeginOffset();
            }
        }
    }

    /** Reads on where the group's offsets in this broker stand, until `count` messages came or none does for ten seconds, and commits. */
    void consume(String group, String topic, int count, Consumer<Map<String, Object>> out) throws Exception {
        DefaultLitePullConsumer member = new DefaultLitePullConsumer(group);
        member.setNamesrvAddr(nameserver);
        member.setAutoCommit(false);
        member.subscribe(topic, "*");
        member.start();
        try {
            long last = System.nanoTime();
            for (int got = 0; got < count && System.nanoTime() - last < 10_000_000_000L; ) {
                List<MessageExt> page = member.poll(500);
                if (!page.isEmpty()) {
                    last = System.nanoTime();
                }
                got += page.size();
                page.forEach(message -> out.accept(told(message)));
            }
            member.commitSync();
        } finally {
            member.shutdown();
        }
    }

    /** Hands a message back as not consumed: the broker stores a copy for another try, a second later. */
    void sendBack(String topic, int queue, long offset) throws Exception {
        MessageQueue from = new MessageQueue(topic, LoopbackBroker.NAME, queue);
        MessageExt message = consumer.pull(from, "*", offset, 1).getMsgFoundList().get(0);
        consumer.sendMessageBack(message, 1, LoopbackBroker.NAME);
    }

    /** Every message that the index names for a key. */
    void find(String topic, String key, Consumer<Map<String, Object>> out) throws Exception {
        try {
            admin.queryMessage(topic, key, 64, 0, Long.MAX_VALUE).getMessageList().forEach(message -> out.accept(told(message)));
        } catch (MQClientException nothingFound) {
            System.err.println(nothingFound);
        }
    }

    /** Sends messages of one queue, one by one or as a batch; says of each request where it was put. */
    void produce(String topic, int queue, boolean batch, List<JSONObject> messages, Consumer<Map<String, Object>> out) throws Exception {
        MessageQueue target = producer.fetchPublishMessageQueues(topic).stream().filter(each -> each.getQueueId() == queue).findFirst().orElseThrow();
        Collection<Message> all = new ArrayList<>();
        messages.forEach(message -> all.add(made(topic, message)));
        if (batch) {
            out.accept(told(producer.send(all, target)));
            return;
        }
        for (Message message : all) {
            out.accept(told(producer.send(message, target)));
        }
    }

    /** Sends numbered messages to every queue of a topic until the process ends, each when the one before is answered. */
    void load(String topic, int bytes, Consumer<Map<String, Object>> out) throws Exception {
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        String filling = ".".repeat(bytes);
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            new Thread(() -> {
                for (int number = 0; ; number++) {
                    Message message = new Message(topic, (number + ":" + filling).getBytes(StandardCharsets.UTF_8));
                    try {
                        Map<String, Object> line = told(producer.send(message, queue));
                        line.put("number", number);
                        out.accept(line);
                    } catch (Exception unknown) {
                        System.err.println(unknown);
                    }
                }
            }).start();
        }
    }

    private static Message made(String topic, JSONObject asked) {
        Message message = new Message(topic, asked.getString("tag"), asked.getString("keys"), asked.getIntValue("flag"), asked.getBytes("body"), true);
        JSONObject properties = asked.getJSONObject("properties");
        properties.keySet().forEach(name -> message.putUserProperty(name, properties.getString(name)));
        if (asked.getIntValue("delayLevel") > 0) {
            message.setDelayTimeLevel(asked.getIntValue("delayLevel"));
        }
        return message;
    }

    private static Map<String, Object> told(SendResult result) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", result.getSendStatus().name());
        line.put("queue", result.getMessageQueue().getQueueId());
        line.put("queueOffset", result.getQueueOffset());
        line.put("id", result.getMsgId());
        return line;
    }

    static Map<String, Object> told(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        byte[] body = message.getBody();
        line.put("topic", message.getTopic());
        line.put("queue", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("position", message.getCommitLogOffset());
        line.put("size", message.getStoreSize());
        line.put("flag", message.getFlag());
        line.put("systemFlag", message.getSysFlag());
        line.put("bornMs", message.getBornTimestamp());
        line.put("bornHost", told(message.getBornHost()));
        line.put("storeMs", message.getStoreTimestamp());
        line.put("storeHost", told(message.getStoreHost()));
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedOffset", message.getPreparedTransactionOffset());
        line.put("tag", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", message.getProperties());
        line.put("body", body == null ? "" : Base64.getEncoder().encodeToString(body));
        return line;
    }

    private static String told(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }
}
