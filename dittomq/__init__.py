"""dittomq: a replicated message log whose copies are provably the same."""
