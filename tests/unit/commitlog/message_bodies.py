"""What a store's queues hold, as bodies."""

from dittomq.commitlog.store import Store


def bodies(store: Store) -> list[bytes]:
    store.dispatch(store.end)
    found = []
    for topic, queue in store.queues():
        at, stop = store.queue_range(topic, queue)
        while at < stop:
            page = store.read_queue(topic, queue, at, 100, 1 << 20)
            found += [(message.physical_offset, message.body) for message in page.messages]
            at = page.next_offset
    return [body for _, body in sorted(found)]
