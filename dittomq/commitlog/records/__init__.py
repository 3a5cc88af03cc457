"""Bytes and values, pure: one record, many records as columns, the records of RocketMQ, digests."""
