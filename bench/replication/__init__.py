"""What replication costs, beside other systems on the same machine in the same window."""
