"""Other systems that promise what dittomq promises, started on loopback beside it and asked to do the same."""
