"""What the log alone does not tell: who the replica is, its epoch history, how far it was durable, how it was left."""
