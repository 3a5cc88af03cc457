"""What follows from the log: consume queues, the key index, sequences of producers, and the checkpoint of all three."""
