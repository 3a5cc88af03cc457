import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/**
 * Records with fields that no client can choose, written by the broker's store as it writes every message.
 *
 * Whole packages are imported because 4.9 and 5.x have MessageExtBrokerInner in one each.
 */
final class Stored {
    /**
     * {"topic":T,"queue":Q,"body":base64,"flag":0,"systemFlag":0,"bornMs":0,"bornHost":[address,port],"storeHost":[address,port],
     * "reconsumeTimes":0,"preparedOffset":0,"properties":{…}}. Returns what the store reads of it.
     */
    static Map<String, Object> put(MessageStore store, JSONObject asked) throws Exception {
        MessageExtBrokerInner record = new MessageExtBrokerInner();
        record.setTopic(asked.getString("topic"));
        record.setQueueId(asked.getIntValue("queue"));
        record.setBody(asked.getBytes("body"));
        record.setFlag(asked.getIntValue("flag"));
        record.setSysFlag(asked.getIntValue("systemFlag"));
        record.setBornTimestamp(asked.getLongValue("bornMs"));
        record.setBornHost(host(asked, "bornHost"));
        record.setStoreHost(host(asked, "storeHost"));
        record.setReconsumeTimes(asked.getIntValue("reconsumeTimes"));
        record.setPreparedTransactionOffset(asked.getLongValue("preparedOffset"));
        Map<String, String> properties = new TreeMap<>();
        asked.getJSONObject("properties").forEach((name, value) -> properties.put(name, value.toString()));
        MessageAccessor.setProperties(record, properties);
        record.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        record.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, record.getTags()));
        PutMessageResult result = store.putMessage(record);
        if (!result.isOk()) {
            throw new IllegalStateException(result.toString());
        }
        return Client.told(store.lookMessageByOffset(result.getAppendMessageResult().getWroteOffset()));
    }

    private static InetSocketAddress host(JSONObject asked, String name) throws UnknownHostException {
        return new InetSocketAddress(InetAddress.getByName(asked.getJSONArray(name).getString(0)), asked.getJSONArray(name).getIntValue(1));
    }
}
