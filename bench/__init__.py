"""What the promises cost, measured. Every process of it waits for the network as a node does, and so do its peers that speak gRPC."""

import os

from dittomq.rpc.polling import wait_with_fewer_threads

wait_with_fewer_threads(os.environ)  # here, before any of its modules loads gRPC
