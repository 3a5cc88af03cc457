"""What docs/rpc.md says beside the .proto files: its introduction, the order of the services, and a line for each RPC."""

from typing import Final, NamedTuple


class RpcLine(NamedTuple):
    """One call by hand. `refused` names the reason where refusing is the right answer; `note` is printed below the line."""

    port: int
    request: str
    note: str = ""
    refused: str = ""


INTRODUCTION: Final = """# Every RPC

Made from `proto/` by `make docs`; a test demands that it is up to date, and another runs every line of it. Reflection
and health are on every port, so [grpcurl](https://github.com/fullstorydev/grpcurl) needs no files. The lines work on
this cluster, whose name, here local-5f2a, `dittomq cluster` prints; other clusters have other addresses:

```console
$ dittomq local up --slaves 2
$ dittomq topic create orders && echo paid | dittomq publish orders
$ grpcurl -plaintext localhost:10911 list
$ grpcurl -plaintext -d '{"service":"readiness"}' localhost:10911 grpc.health.v1.Health/Check
```

- **Ports.** Nameservers 9876. Brokers 10911 for clients and 10912 for replicas. Plaintext unless `[tls]` is set
  ([security](security.md)); grpcurl takes `-cacert`, `-cert` and `-key` then, not `-plaintext`. Plain HTTP for probes
  and metrics: 9877 and 10914.
- **Health names**: the empty one, each service, `startup`, `readiness`, `liveness`.
- **Bodies.** JSON carries `bytes` as base64. `text` is stored as its UTF-8 bytes; `prefer_text` reads it back so.
- **Zero is visible.** A number whose zero means something is `optional`. 64-bit numbers are strings in JSON; they are
  taken either way.
- **Times** that people read are timestamps and durations (`"3s"`); `*_ms` counts milliseconds since 1970.
- **Lists**: `page_size` and `page_token`. A token belongs to one version; when the list has changed, `ABORTED` says
  start again.
- **Errors** are `google.rpc.Status` with `ErrorInfo`: `reason` is a name of [ErrorReason](#errorerrorreason),
  `domain` is `dittomq`, `metadata` has the numbers. `BadRequest` names a wrong field, `RetryInfo` says when waiting
  helps. grpcurl prints them all and exits with 64 + the status code.
- **Headers** of every answer: `dittomq-node`, `dittomq-cluster`, `dittomq-epoch`, `dittomq-request-id`; the id is in the server's log.
  A master that takes messages adds `dittomq-log-end`: nothing that the call brings lies below it; `min_possible_offset` is made of that.
  A node that does not name it takes none: it ends a stream of them with the reason.
- **Headers** of a call that say who it is for: `dittomq-for-node`, "a/0", or "a" for any node of that group, and
  `dittomq-for-cluster`. Another node that has come up at the address refuses it with `WRONG_CLUSTER` before it does
  anything. The client library sends them with what it publishes, pulls or changes; without them the node that has the address obeys.
- **Roles.** Each call names the role that it needs; where a node has an access file ([security](security.md)), its caller must have it, for
  the topics and groups that the call names. `anybody` is whoever has shown who he is. grpcurl takes a token with
  `-H 'authorization: Bearer TOKEN'`.
- **Deadlines.** Without one of the caller's, a unary call has 30 s.
"""

SERVICES: Final = (
    "ditto.naming.v1.NameServerService",
    "ditto.coordination.v1.CoordinationService",
    "ditto.admin.v1.TopicService",
    "ditto.admin.v1.GroupService",
    "ditto.admin.v1.BrokerService",
    "ditto.messaging.v1.MessagingService",
    "ditto.messaging.v1.ConsumerGroupService",
    "ditto.messaging.v1.TransactionService",
    "ditto.metadata.v1.MetadataService",
    "ditto.audit.v1.AuditService",
    "ditto.replication.v1.ReplicationService",
    "ditto.replication.v1.ElectionService",
)

_NAMESERVER, _CLIENTS, _REPLICAS = 9876, 10911, 10912
_NAMING, _COORDINATION, _TOPICS, _GROUPS, _BROKER, _MESSAGING, _CONSUMERS, _TRANSACTIONS, _METADATA, _AUDIT, _REPLICATION, _ELECTION = (
    SERVICES
)

_REGISTER = (
    '{"cluster":"local-5f2a","broker":"z","broker_id":1,"replica_uuid":"0123456789abcdef0123456789abcdef","epoch":0,'
    '"role":"BROKER_ROLE_SLAVE","state":"BROKER_STATE_SERVING","addresses":[{"network":"default","address":"127.0.0.1:10999"}],'
    '"replication_addresses":[{"network":"default","address":"127.0.0.1:10998"}],"permission":6,"registration_period_ms":"10000"}'
)
_PUBLISH = (
    '{"message":{"topic":"orders","text":"paid","queue":3,"keys":["o-17"]},"ack":"ACK_LEVEL_REPLICA_FLUSHED","timeout":"3s",'
    '"producer_id":"by-hand","sequence":0}'
)
_NO_PIN = "0123456789abcdef0123456789abcdef"
_HANDSHAKE = (
    '{"handshake":{"cluster":"other","broker":"a","broker_id":9,"replica_uuid":"fedcba9876543210fedcba9876543210","protocol_version":1,'
    '"incarnation":"0123456789abcdef","replication_address":"127.0.0.1:10997","segment_bytes":67108864}}'
)

LINES: Final = {
    f"{_NAMING}/GetRoute": RpcLine(_NAMESERVER, '{"topic":"orders"}'),
    f"{_NAMING}/WatchRoutes": RpcLine(
        _NAMESERVER, '{"topics":["orders"],"max_responses":1}', "Without `max_responses` it goes on until you leave."
    ),
    f"{_NAMING}/ListBrokers": RpcLine(_NAMESERVER, "{}"),
    f"{_NAMING}/RegisterBroker": RpcLine(_NAMESERVER, _REGISTER, "Brokers call this. A node that was made up is forgotten 30 s later."),
    f"{_NAMING}/Heartbeat": RpcLine(
        _NAMESERVER,
        '{"session_id":"made-up","state":"BROKER_STATE_SERVING"}',
        "Refused with `SESSION_EXPIRED`: no node has this session.",
        refused="SESSION_EXPIRED",
    ),
    f"{_NAMING}/UnregisterBroker": RpcLine(_NAMESERVER, '{"session_id":"made-up"}', "Removes no node."),
    f"{_NAMING}/SetWritePermission": RpcLine(
        _NAMESERVER,
        '{"broker":"a","writable":true}',
        'With `"writable":false` no route of this nameserver names the group for writing. `dittomq writes off a` tells every nameserver.',
    ),
    f"{_NAMING}/PutKeyValue": RpcLine(
        _NAMESERVER,
        '{"key_value":{"namespace":"ORDER_TOPIC_CONFIG","key":"orders","value":"a:4"}}',
        "Order keys of the topic go to queues 0 to 3 of group a, whatever else comes or goes. Call every nameserver.",
    ),
    f"{_NAMING}/GetKeyValue": RpcLine(_NAMESERVER, '{"namespace":"ORDER_TOPIC_CONFIG","key":"orders"}'),
    f"{_NAMING}/ListKeyValues": RpcLine(_NAMESERVER, '{"namespace":"ORDER_TOPIC_CONFIG"}'),
    f"{_NAMING}/DeleteKeyValue": RpcLine(_NAMESERVER, '{"namespace":"ORDER_TOPIC_CONFIG","key":"orders"}'),
    f"{_COORDINATION}/Get": RpcLine(_NAMESERVER, '{"cluster":"local-5f2a","broker":"a"}'),
    f"{_COORDINATION}/CompareAndSet": RpcLine(
        _NAMESERVER,
        '{"cluster":"local-5f2a","broker":"a","expected_version":"none","record":"e30="}',
        note="Answers `written: false`, because the record has no such version.",
    ),
    f"{_COORDINATION}/Watch": RpcLine(
        _NAMESERVER,
        '{"cluster":"other","broker":"a"}',
        note="With the cluster's own name the call stays open, and prints a line at each change.",
        refused="WRONG_CLUSTER",
    ),
    f"{_TOPICS}/CreateTopic": RpcLine(_CLIENTS, '{"topic":{"name":"invoices","read_queues":4,"write_queues":4}}'),
    f"{_TOPICS}/GetTopic": RpcLine(_CLIENTS, '{"name":"invoices"}'),
    f"{_TOPICS}/ListTopics": RpcLine(_CLIENTS, '{"page_size":100}'),
    f"{_TOPICS}/UpdateTopic": RpcLine(
        _CLIENTS,
        '{"topic":{"name":"invoices","read_queues":8,"write_queues":8},"update_mask":["read_queues","write_queues"]}',
    ),
    f"{_TOPICS}/DeleteTopic": RpcLine(_CLIENTS, '{"name":"invoices"}'),
    f"{_GROUPS}/CreateGroup": RpcLine(_CLIENTS, '{"group":{"name":"billing"}}'),
    f"{_GROUPS}/GetGroup": RpcLine(_CLIENTS, '{"name":"billing"}'),
    f"{_GROUPS}/ListGroups": RpcLine(_CLIENTS, '{"page_size":100}'),
    f"{_GROUPS}/UpdateGroup": RpcLine(
        _CLIENTS,
        '{"group":{"name":"billing","retry_max_times":3},"update_mask":["retry_max_times"]}',
    ),
    f"{_GROUPS}/DeleteGroup": RpcLine(_CLIENTS, '{"name":"billing","validate_only":true}', "Without `validate_only` it is gone."),
    f"{_GROUPS}/GetProgress": RpcLine(_CLIENTS, '{"group":"billing","topic":"orders"}'),
    f"{_GROUPS}/ResetOffsets": RpcLine(
        _CLIENTS,
        '{"group":"billing","topic":"orders","target":"RESET_TARGET_EARLIEST","validate_only":true}',
        "Without `validate_only` the offsets are moved; refused while the group has members.",
    ),
    f"{_GROUPS}/ListDeadLetters": RpcLine(_CLIENTS, '{"group":"billing","page_size":10,"prefer_text":true}'),
    f"{_GROUPS}/ReplayDeadLetters": RpcLine(
        _CLIENTS,
        '{"group":"billing","page_size":10,"validate_only":true}',
        "Without `validate_only` members of the group get copies; `next_page_token` goes into the next call.",
    ),
    f"{_BROKER}/GetBroker": RpcLine(_CLIENTS, "{}"),
    f"{_BROKER}/GetHaStatus": RpcLine(_CLIENTS, "{}"),
    f"{_BROKER}/WatchHaStatus": RpcLine(
        _CLIENTS, '{"period":"1s","max_responses":2}', "Without `max_responses` it goes on until you leave."
    ),
    f"{_BROKER}/Switchover": RpcLine(_CLIENTS, '{"target":"a/1","validate_only":true}', "Without `validate_only` a/1 becomes the master."),
    f"{_BROKER}/Failover": RpcLine(
        _CLIENTS,
        '{"node":"a/0","validate_only":true}',
        "Call a slave under its own name. Here it is refused with `PRECONDITION_FAILED`: a/0 leads already.",
        refused="PRECONDITION_FAILED",
    ),
    f"{_BROKER}/SetPaused": RpcLine(_CLIENTS, '{"broker":"a","paused":false}', "Nothing changes: failover is not paused."),
    f"{_BROKER}/GetHaHistory": RpcLine(_CLIENTS, "{}", "Only the master answers."),
    f"{_BROKER}/Repair": RpcLine(
        _CLIENTS, '{"node":"a/0"}', "Without `ranges` all was whole; without `done` ask again from `endOffset` on."
    ),
    f"{_MESSAGING}/Publish": RpcLine(_CLIENTS, _PUBLISH, "Run it twice: the second answer is the first receipt, with `duplicate`."),
    f"{_MESSAGING}/PublishStream": RpcLine(
        _CLIENTS, '{"messages":[{"topic":"orders","text":"packed"},{"topic":"orders","text":"sent"}],"batch_id":1}'
    ),
    f"{_MESSAGING}/GetPublishResult": RpcLine(_CLIENTS, '{"producer_id":"by-hand","sequence":0,"timeout":"3s"}'),
    f"{_MESSAGING}/Pull": RpcLine(_CLIENTS, '{"topic":"orders","queue":3,"offset":0,"wait":"5s","prefer_text":true}'),
    f"{_MESSAGING}/PullStream": RpcLine(
        _CLIENTS,
        '{"topic":"orders","queue":3,"offset":0,"wait":"5s","prefer_text":true,"max_responses":1}',
        "Without `max_responses` it goes on until you leave.",
    ),
    f"{_MESSAGING}/FindOffset": RpcLine(_CLIENTS, '{"topic":"orders","queue":3,"time":"2026-11-20T14:00:00Z"}'),
    f"{_MESSAGING}/GetMessage": RpcLine(
        _CLIENTS,
        '{"id":"1.4611686018427387903-100.a","prefer_text":true}',
        "`id` is the `token` of a receipt. Refused with `MESSAGE_NOT_FOUND`: no receipt has this one.",
        refused="MESSAGE_NOT_FOUND",
    ),
    f"{_MESSAGING}/FindMessages": RpcLine(_CLIENTS, '{"topic":"orders","key":"o-17","page_size":10,"prefer_text":true}'),
    f"{_MESSAGING}/Cancel": RpcLine(
        _CLIENTS,
        '{"token":"1.4611686018427387903-100.a"}',
        "`token` is that of the receipt of a delayed message. Refused with `MESSAGE_NOT_FOUND`: no receipt has this one.",
        refused="MESSAGE_NOT_FOUND",
    ),
    f"{_CONSUMERS}/GetOffsets": RpcLine(_CLIENTS, '{"group":"billing","queues":[{"topic":"orders","queue":3}]}'),
    f"{_CONSUMERS}/CommitOffsets": RpcLine(
        _CLIENTS,
        '{"group":"billing","commits":[{"topic":"orders","queue":3,"offset":0}]}',
        "An offset beyond the end of the queue is refused with `OFFSET_OUT_OF_RANGE`.",
    ),
    f"{_CONSUMERS}/Receive": RpcLine(
        _CLIENTS,
        '{"group":"billing","topic":"orders","max_messages":10,"wait":"1s","lease":"60s","prefer_text":true}',
        "`lease_token` of each message goes into the next two.",
    ),
    f"{_CONSUMERS}/Acknowledge": RpcLine(
        _CLIENTS, '{"group":"billing","lease_tokens":["1.3.0.1.orders"]}', "`acknowledged` is true, or the lease has ended."
    ),
    f"{_CONSUMERS}/ExtendLease": RpcLine(
        _CLIENTS,
        '{"group":"billing","lease_token":"1.3.999.1.orders","lease":"60s"}',
        "Refused with `SESSION_EXPIRED`: there is no such lease.",
        refused="SESSION_EXPIRED",
    ),
    f"{_CONSUMERS}/Join": RpcLine(
        _CLIENTS,
        '{"number":1,"join":{"group":"billing","member":"by-hand","process":"p1","subscriptions":[{"topic":"orders"}]}}',
        "By hand the stream ends at once; the member keeps its queues for the session of 10 s. A member sends heartbeats.",
    ),
    f"{_CONSUMERS}/LockQueues": RpcLine(
        _CLIENTS,
        '{"group":"billing","member":"by-hand","queues":[{"topic":"orders","queues":[3]}]}',
        "In its first minute a master locks nothing: locks of the master before may hold.",
    ),
    f"{_CONSUMERS}/UnlockQueues": RpcLine(_CLIENTS, '{"group":"billing","member":"by-hand","queues":[{"topic":"orders","queues":[3]}]}'),
    f"{_CONSUMERS}/SendBack": RpcLine(
        _CLIENTS,
        '{"group":"billing","topic":"orders","queue":3,"offset":1}',
        "Refused: there is no such message.",
        refused="OFFSET_OUT_OF_RANGE",
    ),
    f"{_TRANSACTIONS}/EndTransaction": RpcLine(
        _CLIENTS,
        '{"token":"1.4611686018427387903-100.a","end":"TRANSACTION_END_COMMIT"}',
        "`token` is that of the receipt of a half message. Refused with `MESSAGE_NOT_FOUND`: no receipt has this one.",
        refused="MESSAGE_NOT_FOUND",
    ),
    f"{_TRANSACTIONS}/WatchChecks": RpcLine(
        _CLIENTS,
        '{"group":""}',
        "Refused with `INVALID_FIELD`: a name is missing. With one it goes on until you stop it.",
        refused="INVALID_FIELD",
    ),
    f"{_METADATA}/GetAllTopicConfig": RpcLine(_CLIENTS, '{"page_size":100}'),
    f"{_METADATA}/GetAllConsumerOffset": RpcLine(_CLIENTS, "{}"),
    f"{_METADATA}/GetAllDelayOffset": RpcLine(
        _CLIENTS, "{}", "How far RocketMQ's delay levels are delivered; empty until the first delayed message."
    ),
    f"{_METADATA}/GetAllSubscriptionGroupConfig": RpcLine(_CLIENTS, "{}"),
    f"{_METADATA}/ReturnConsumerOffsets": RpcLine(
        _CLIENTS,
        '{"offsets":[{"topic":"gone","group":"billing","queue":0,"offset":1}]}',
        "Slaves call this. Answers `dropped: 1`: there is no such topic.",
    ),
    f"{_METADATA}/WatchVersions": RpcLine(_CLIENTS, '{"max_responses":1}', "Without `max_responses` it goes on until you leave."),
    f"{_AUDIT}/Describe": RpcLine(_CLIENTS, "{}"),
    f"{_AUDIT}/Pin": RpcLine(_CLIENTS, '{"run":"by-hand","lease":"60s"}', "`pin_id` names it in the next two."),
    f"{_AUDIT}/RenewPin": RpcLine(
        _CLIENTS,
        f'{{"pin_id":"{_NO_PIN}","lease":"60s"}}',
        "Refused with `SESSION_EXPIRED`: there is no such pin.",
        refused="SESSION_EXPIRED",
    ),
    f"{_AUDIT}/Unpin": RpcLine(_CLIENTS, f'{{"pin_id":"{_NO_PIN}"}}', "Answers that it had ended: there is no such pin."),
    f"{_AUDIT}/DigestRange": RpcLine(_CLIENTS, '{"start_offset":0,"end_offset":100,"salt":"7","leaves":true}'),
    f"{_AUDIT}/ReadRange": RpcLine(_CLIENTS, '{"start_offset":0,"end_offset":100}'),
    f"{_REPLICATION}/Replicate": RpcLine(
        _REPLICAS,
        _HANDSHAKE,
        "Slaves call this. Here it is refused with `WRONG_CLUSTER`; with the cluster's own name it feeds a new slave.",
        refused="WRONG_CLUSTER",
    ),
    f"{_REPLICATION}/FetchRange": RpcLine(
        _REPLICAS,
        '{"cluster":"local-5f2a","broker":"a","start_offset":0,"end_offset":166}',
        "The first record of the cluster above. Both offsets are borders of records: a receipt's `physical_offset`, and that plus "
        "its `record_bytes`.",
    ),
    f"{_REPLICATION}/FetchLogStart": RpcLine(
        _REPLICAS,
        '{"cluster":"local-5f2a","broker":"a"}',
        "Slaves ask this when their log begins where their master's does now. Nothing was dropped from the log of the cluster above.",
    ),
    f"{_ELECTION}/Ask": RpcLine(_REPLICAS, '{"cluster":"local-5f2a","broker":"a"}', "Without a `candidate` the caller only looks."),
    f"{_ELECTION}/Promise": RpcLine(
        _REPLICAS,
        '{"cluster":"local-5f2a","broker":"a","candidate":"a/9","candidate_replica":"0123456789abcdef0123456789abcdef.0123456789abcdef","epoch":"1","birth":"made-up"}',
        "Candidates call this. Here nothing is granted: a master that leads promises only to a node that it or an operator sent.",
    ),
    f"{_ELECTION}/Stand": RpcLine(
        _REPLICAS,
        '{"cluster":"local-5f2a","broker":"a","sent_by":"SENT_BY_OPERATOR"}',
        "Asks a slave to stand for election. Here it is refused with `PRECONDITION_FAILED`: a/0 leads already.",
        refused="PRECONDITION_FAILED",
    ),
}
