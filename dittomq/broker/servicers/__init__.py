"""Servicers that master and slave share: decode, call, encode."""
