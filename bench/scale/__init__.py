"""What large tables cost: a nameserver of 1,000 groups, one topic more among 60,000, one commit among 1,000,000 offsets."""
