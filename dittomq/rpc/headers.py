"""What every answer's headers carry, on both sides."""

NODE_HEADER = "dittomq-node"
EPOCH_HEADER = "dittomq-epoch"
REQUEST_ID_HEADER = "dittomq-request-id"
