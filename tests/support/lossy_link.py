"""A network of a test's own that loses packets, between two addresses of this machine. It needs root; elsewhere the test is skipped.

    near:port  ◀── the kernel's TCP ──▶  tun device  ◀── read, lost or written back with both addresses swapped ──┐
    far:port   ── is routed to the device ──────────────────▶                                                     ┘

Who dials the far address reaches whoever listens at the near one, over real TCP, which sends again what was lost. No packet is lost more
than twice: so TCP stands still for some seconds at most, and never as long as it likes.
"""

import contextlib
import fcntl
import os
import random
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.waiting import PATIENCE_S

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8914, 0x8916, 0x891C, 0x0001
_NETMASK = "255.255.255.252"
_LARGEST_PACKET_BYTES = 65_536
_LOOKS_EVERY_MS = 50
_NETWORKS = 1 << 15
_MOST_LOSSES = 2
_TCP = 6


class LossyLink:
    """`share` of all packets are lost, in either direction. `lost` and `passed` count them."""

    def __init__(self, device: int, near: str, far: str, chance: random.Random) -> None:
        self.near = near
        self.far = far
        self.share = 0.0
        self.lost = self.passed = 0
        self._device = device
        self._chance = chance
        self._losses: Counter[bytes] = Counter()
        self._over = threading.Event()

    @contextlib.contextmanager
    def working(self) -> Iterator["LossyLink"]:
        """It carries packets while the block runs."""
        thread = threading.Thread(target=self._carry, name=f"link {self.far}", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join(PATIENCE_S)

    def _carry(self) -> None:
        poller = select.poll()
        poller.register(self._device, select.POLLIN)
        while not self._over.is_set():
            if not poller.poll(_LOOKS_EVERY_MS):
                continue
            packet = os.read(self._device, _LARGEST_PACKET_BYTES)
            if packet[0] >> 4 != 4 or packet[9] != _TCP:
                continue  # the kernel looks for neighbours that speak IPv6
            if self._loses(packet):
                self.lost += 1
                continue
            self.passed += 1
            os.write(self._device, packet[:12] + packet[16:20] + packet[12:16] + packet[20:])  # no checksum changes by that

    def _loses(self, packet: bytes) -> bool:
        if self._chance.random() >= self.share:
            return False
        segment = packet[(packet[0] & 15) * 4 :]
        carries = len(segment) > (segment[12] >> 4) * 4
        same = segment[:8] if carries else segment[:12]  # ports and where it begins; of an ack alone, also what it acknowledges
        self._losses[same] += 1
        return self._losses[same] <= _MOST_LOSSES


@contextlib.contextmanager
def lossy_link(chance: random.Random) -> Iterator[LossyLink]:
    """It is there and loses nothing yet; its device goes with the block, or with this process."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a network that loses packets")
    network = os.getpid() % _NETWORKS * 4
    near, far = (f"198.{18 + (at >> 16)}.{at >> 8 & 255}.{at & 255}" for at in (network + 1, network + 2))  # the range for such tests
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    except OSError as refused:
        pytest.skip(f"no tun device is to be had here: {refused}")
    try:
        name = fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"", _IFF_TUN | _IFF_NO_PI))[:16]
        _bring_up(name, near)
        with LossyLink(device, near, far, chance).working() as link:
            yield link
    finally:
        os.close(device)


def _bring_up(name: bytes, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for asked, number in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, _NETMASK)):
            fcntl.ioctl(any_socket, asked, struct.pack("16sH2x4s8x8x", name, socket.AF_INET, socket.inet_aton(number)))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x8x", name, _IFF_UP))
