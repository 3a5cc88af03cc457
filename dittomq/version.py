"""The version of dittomq."""

VERSION = "0.2.0"
