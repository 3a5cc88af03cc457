import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A nameserver and a master of RocketMQ in this process, on free ports of loopback. Compiles against 4.9 and 5.x. */
final class LoopbackBroker {
    static final String NAME = "a";
    final String nameserver;
    private final NamesrvController naming;
    private final BrokerController broker;

    /** Opens the store in this folder; `settings` are RocketMQ's own broker properties. Throws IllegalStateException when RocketMQ refuses it. */
    LoopbackBroker(Path store, Properties settings) throws Exception {
        int port = freePort();
        NettyServerConfig namingServer = server(port);
        nameserver = "127.0.0.1:" + port;
        naming = new NamesrvController(new NamesrvConfig(), namingServer);
        naming.initialize();
        naming.start();
        broker = new BrokerController(identity(settings), server(freeBrokerPort()), new NettyClientConfig(), storeConfig(store, settings));
        if (!broker.initialize()) {
            throw new IllegalStateException("RocketMQ does not load the store; its log says why");
        }
        broker.start();
        while (naming.getRouteInfoManager().pickupTopicRouteData(NAME) == null) { // a broker has a topic of its own name
            Thread.sleep(20); // 5.x connects to its nameservers in the background and, with none, leaves registering for ten seconds
            broker.registerBrokerAll(true, false, true);
        }
    }

    MessageStore store() {
        return broker.getMessageStore();
    }

    String address() {
        return broker.getBrokerAddr();
    }

    /** The tables of topics, groups and consumer offsets, each as the text of its file. */
    Map<String, Object> config() {
        return Map.of(
            "topics", broker.getTopicConfigManager().encode(),
            "groups", broker.getSubscriptionGroupManager().encode(),
            "offsets", broker.getConsumerOffsetManager().encode());
    }

    /** A clean shutdown of the broker; the nameserver, which holds nothing, ends with the process. */
    void close() {
        broker.shutdown();
    }

    private BrokerConfig identity(Properties settings) {
        BrokerConfig config = new BrokerConfig();
        MixAll.properties2Object(settings, config);
        config.setBrokerClusterName("interop");
        config.setBrokerName(NAME);
        config.setBrokerId(MixAll.MASTER_ID);
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setNamesrvAddr(nameserver);
        return config;
    }

    private static MessageStoreConfig storeConfig(Path store, Properties settings) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setHaListenPort(freePort());
        config.setDiskMaxUsedSpaceRatio(95);
        config.setFileReservedTime(24 * 365);
        MixAll.properties2Object(settings, config);
        config.setStorePathRootDir(store.toString());
        config.setStorePathCommitLog(store.resolve("commitlog").toString());
        return config;
    }

    private static NettyServerConfig server(int port) {
        Properties settings = new Properties();
        settings.setProperty("bindAddress", "127.0.0.1"); // 4.9 does not know it and binds every address
        settings.setProperty("listenPort", Integer.toString(port));
        NettyServerConfig config = new NettyServerConfig();
        MixAll.properties2Object(settings, config);
        return config;
    }

    /** Below the ports from which local clusters of dittomq choose, and above those that they usually have: neither takes the other's. */
    private static int freePort() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(12_000, 20_000);
            if (isFree(port)) {
                return port;
            }
        }
    }

    /** A broker listens two ports below its own, too. */
    private static int freeBrokerPort() {
        while (true) {
            int port = freePort();
            if (isFree(port - 2)) {
                return port;
            }
        }
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket(port)) {
            return true;
        } catch (IOException taken) {
            return false;
        }
    }
}
