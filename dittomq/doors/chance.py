"""Chance. The door is `random.Random` itself: production hands in the OS's source, the simulator a seeded one."""

import random


def os_chance() -> random.Random:
    """Random numbers from the operating system."""
    return random.SystemRandom()


def hex_id(chance: random.Random) -> str:
    """128 random bits as 32 hex digits: names a replica, a session, a producer, a run."""
    return f"{chance.getrandbits(128):032x}"
