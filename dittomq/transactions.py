"""Transactions: how RocketMQ keeps them, and what brokers and clients agree on.

A *half message* lies in a system topic until its transaction ends; nobody else sees it. One record, in RocketMQ's op topic, ends it: its
key is the place of the half message, its body the half message's queue offset. What was committed is then delivered as delayed messages
are, and under a system producer too: the op's offset is the sequence of the copy. So one record decides, and the copy comes exactly once.

Source: Apache RocketMQ, TransactionalMessageUtil, TransactionalMessageBridge#parseHalfMessageInner and #writeOp,
TransactionalMessageServiceImpl#check.
"""

from enum import StrEnum
from typing import Final

from dittomq.delays import OP_TOPIC, OUTCOME, REAL_QUEUE, REAL_TOPIC
from dittomq.errors import InvalidField
from dittomq.message import Draft, StoredMessage
from dittomq.properties import encode_properties, tags_code

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
EXPIRED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where RocketMQ puts half messages whose transactions nobody ended."""
ROCKETMQ_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Whose offset says how far RocketMQ has dealt with half messages: each one below has ended, lies behind once more, or was put aside."""
PRODUCER_GROUP: Final = "PGROUP"
IS_TRANSACTION: Final = "TRAN_MSG"
MAX_GROUP_CHARACTERS: Final = 255
FIRST_CHECK_S: Final = 6.0
LONGEST_CHECK_S: Final = 60.0
MAX_CHECKS: Final = 15
_OP_TAG: Final = "d"


class TransactionEnd(StrEnum):
    """How a transaction ended; EXPIRED: nobody ended it, and it was put aside."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    EXPIRED = "expired"


def check_group(group: str) -> None:
    """Refuse what names no producer group."""
    if not 1 <= len(group) <= MAX_GROUP_CHARACTERS or not group.isascii() or not group.isprintable():
        raise InvalidField("transaction_group", f"has 1 to {MAX_GROUP_CHARACTERS} printable ASCII characters")


def half_of(draft: Draft, group: str) -> Draft:
    """The half message of that message. Raises InvalidField for a delayed one."""
    check_group(group)
    own = f"{IS_TRANSACTION}\x01true\x02{PRODUCER_GROUP}\x01{group}\x02{REAL_TOPIC}\x01{draft.topic}\x02{REAL_QUEUE}\x01{draft.queue}\x02"
    return draft._replace(topic=HALF_TOPIC, queue=0, properties=draft.properties + own.encode())


def op_of(half: StoredMessage, end: TransactionEnd, now_ms: int) -> Draft:
    """The record that ends the transaction of a half message."""
    properties = encode_properties((str(half.physical_offset),), _OP_TAG, {OUTCOME: end})
    return Draft(OP_TOPIC, 0, 0, now_ms, str(half.queue_offset).encode(), properties, tags_code(_OP_TAG))


def next_check_s(checks: int) -> float:
    """How long after so many checks the next one follows."""
    return min(LONGEST_CHECK_S, FIRST_CHECK_S * 2.0**checks)
