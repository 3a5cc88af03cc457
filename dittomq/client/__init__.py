"""The client library: publish, read, manage. Asynchronous in `AsyncClient`, the same names without await in `Client`."""

from dittomq.client.access import ClusterAccess
from dittomq.client.admin import Admin, CreatedTopic, NameserverResult, TopicDescription, UpdatedTopic
from dittomq.client.async_client import AsyncClient
from dittomq.client.bulk import BulkPublish, Outcomes, PublishTally
from dittomq.client.consumer import ConsumedMessage, Consumer, ConsumerOptions
from dittomq.client.group_admin import CreatedGroup, UpdatedGroup
from dittomq.client.group_result import GroupResult
from dittomq.client.lookups import FoundMessage, MessageLookups
from dittomq.client.producer import Producer, ProducerOptions
from dittomq.client.reader import Page, Reader, ReaderOptions
from dittomq.client.sync_client import Client
from dittomq.client.transactions import Transaction, TransactionChecks
from dittomq.consumer.dead_letters import (
    DeadLetterMessage,
    DeadLetterPage,
    DeadLetterQuery,
    LetterPlace,
    ReplayedLetter,
    ReplayOrder,
    ReplayResult,
)
from dittomq.consumer_progress import CommittedOffset, GroupProgress, OffsetCommit, QueueProgress, QueueReset, ResetOrder, ResetTarget
from dittomq.errors import AckLevelNotReached, DittoError, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.message import Ack, Copy, CopyState, Message, PutStatus, Receipt, StoredMessage
from dittomq.metadata.groups import GroupUpdate
from dittomq.metadata.rows import GroupConfig
from dittomq.security.certificate_files import CertificateFiles
from dittomq.wire.lookups import CancelOutcome
from dittomq.wire.transactions import TransactionCheck

__all__ = [
    "Ack",
    "AckLevelNotReached",
    "Admin",
    "AsyncClient",
    "BulkPublish",
    "CancelOutcome",
    "CertificateFiles",
    "Client",
    "ClusterAccess",
    "CommittedOffset",
    "ConsumedMessage",
    "Consumer",
    "ConsumerOptions",
    "Copy",
    "CopyState",
    "CreatedGroup",
    "CreatedTopic",
    "DeadLetterMessage",
    "DeadLetterPage",
    "DeadLetterQuery",
    "DittoError",
    "FoundMessage",
    "GroupConfig",
    "GroupProgress",
    "GroupResult",
    "GroupUpdate",
    "LetterPlace",
    "Message",
    "MessageLookups",
    "NameserverResult",
    "NotStored",
    "OffsetCommit",
    "OutcomeHandle",
    "OutcomeUnknown",
    "Outcomes",
    "Page",
    "Producer",
    "ProducerOptions",
    "PublishTally",
    "PutStatus",
    "QueueProgress",
    "QueueReset",
    "Reader",
    "ReaderOptions",
    "Receipt",
    "ReplayOrder",
    "ReplayResult",
    "ReplayedLetter",
    "ResetOrder",
    "ResetTarget",
    "StoredMessage",
    "TopicDescription",
    "Transaction",
    "TransactionCheck",
    "TransactionChecks",
    "UpdatedGroup",
    "UpdatedTopic",
]
