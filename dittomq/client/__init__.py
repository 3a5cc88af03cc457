"""The client library: publish, read, manage. Asynchronous in `AsyncClient`, the same names without await in `Client`."""

from dittomq.client.admin import Admin, CreatedTopic, GroupResult, NameserverResult, TopicDescription, UpdatedTopic
from dittomq.client.async_client import AsyncClient
from dittomq.client.bulk import BulkPublish, Outcomes, PublishTally
from dittomq.client.lookups import FoundMessage, MessageLookups
from dittomq.client.producer import Producer, ProducerOptions
from dittomq.client.reader import Page, Reader, ReaderOptions
from dittomq.client.sync_client import Client
from dittomq.errors import AckLevelNotReached, DittoError, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.message import Ack, Copy, CopyState, Message, PutStatus, Receipt, StoredMessage
from dittomq.wire.lookups import CancelOutcome

__all__ = [
    "Ack",
    "AckLevelNotReached",
    "Admin",
    "AsyncClient",
    "BulkPublish",
    "CancelOutcome",
    "Client",
    "Copy",
    "CopyState",
    "CreatedTopic",
    "DittoError",
    "FoundMessage",
    "GroupResult",
    "Message",
    "MessageLookups",
    "NameserverResult",
    "NotStored",
    "OutcomeHandle",
    "OutcomeUnknown",
    "Outcomes",
    "Page",
    "Producer",
    "ProducerOptions",
    "PublishTally",
    "PutStatus",
    "Reader",
    "ReaderOptions",
    "Receipt",
    "StoredMessage",
    "TopicDescription",
    "UpdatedTopic",
]
