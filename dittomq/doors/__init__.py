"""The five doors to the world: clock, random, transport, workers here; storage in `dittomq.commitlog.disk.storage`.

Everything nondeterministic or outside the process comes through them, handed in by a composition root.
"""
