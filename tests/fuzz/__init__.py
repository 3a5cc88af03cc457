"""Requests that a coverage-guided fuzzer makes up, sent to real servers: no crash, no growth, no traceback to a caller."""
