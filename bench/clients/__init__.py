"""What clients get: many callers of one producer, readers, groups; beside others in the same window."""
