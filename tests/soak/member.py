"""One member of a consumer group, as a process: `python -m tests.soak.member NAMESERVER GROUP TOPIC FILE`.

It writes a line for each message that it handles, then acknowledges it. SIGTERM lets it leave the group.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time

from dittomq.client import AsyncClient


async def consume(nameserver: str, group: str, topic: str, file: str) -> None:
    """Handle messages until SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with AsyncClient(nameserver) as mq, mq.consumer(group=group, topics=[topic]) as messages:
        async for message in messages:
            place = {"queue": message.queue, "offset": message.queue_offset}
            line = {"at": time.time(), **place, "body": message.body.decode()}
            os.write(out, f"{json.dumps(line)}\n".encode())
            await message.ack()


def main() -> int:
    """Run it."""
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(consume(*sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
