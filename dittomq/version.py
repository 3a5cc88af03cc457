"""The version of dittomq."""

VERSION = "0.1.0"
