"""What the log alone does not tell: who the replica is, its lineage, how far it was durable, how it was left."""
