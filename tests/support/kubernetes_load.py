"""What a client pod runs: publish one message after the other for SECONDS, read all back, print one JSON document with what was lost.

`python3 - NAMESERVERS TOPIC SECONDS`; it needs nothing but the client. 0 seconds: count what there is. Variables name certificates.
"""

import json
import os
import sys
import time

from dittomq.client import Client, DittoError
from dittomq.client.access import certificates_of
from dittomq.client.sync_client import SyncProducer

_LOOKS_FOR_S = 30.0
_CREATES_FOR_S = 60.0
_CREATES_EVERY_S = 0.2


def main(nameservers: str, topic: str, seconds: float) -> dict[str, object]:
    """Publish, read back, and tell what was acknowledged and is gone, or there twice, and the longest time without a receipt."""
    with Client(nameservers, tls=certificates_of(os.environ)) as mq:
        if not seconds:
            return {"found": len(set(_read_back(mq, topic, sys.maxsize)))}
        _create(mq, topic)
        with mq.producer(on_weak="return", retry_s=60.0) as producer:
            producer.publish(topic, b"first")
            print("publishing", flush=True)
            acknowledged, refusals, longest_s = _publish(producer, topic, seconds)
        found = _read_back(mq, topic, len(acknowledged))
    return {
        "acknowledged": len(acknowledged),
        "refusals": refusals[:5],
        "lost": len(acknowledged - set(found)),
        "twice": len(found) - len(set(found)),
        "longest_s": round(longest_s, 2),
    }


def _create(mq: Client, topic: str) -> None:
    """Create it, with patience: nameservers hear of the master of a new group a moment after it was elected."""
    deadline = time.monotonic() + _CREATES_FOR_S
    results = mq.admin.create_topic(topic, 4)
    while not any(result.value for result in results):
        assert time.monotonic() < deadline, results
        time.sleep(_CREATES_EVERY_S)
        results = mq.admin.create_topic(topic, 4)


def _publish(producer: SyncProducer, topic: str, seconds: float) -> tuple[set[bytes], list[str], float]:
    acknowledged, longest_s = {b"first"}, 0.0
    refusals: list[str] = []
    last = time.monotonic()
    end = last + seconds
    while last < end:
        body = b"%d" % (len(acknowledged) + len(refusals))
        try:
            producer.publish(topic, body)
            acknowledged.add(body)
        except DittoError as error:
            refusals.append(str(error))
        now = time.monotonic()
        longest_s, last = max(longest_s, now - last), now
    return acknowledged, refusals, longest_s


def _read_back(mq: Client, topic: str, wanted: int) -> list[bytes]:
    found: list[bytes] = []
    offsets = dict.fromkeys(range(4), 0)
    deadline = time.monotonic() + _LOOKS_FOR_S
    while len(set(found)) < wanted and time.monotonic() < deadline:
        for queue, offset in offsets.items():
            page = mq.reader(topic, queue).pull(offset, wait_s=0.2)
            found += [message.body for message in page.messages]
            offsets[queue] = page.next_offset
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], float(sys.argv[3]))), flush=True)
