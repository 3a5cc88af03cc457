"""Files: the door to the operating system, segments, the bytes of the log."""
