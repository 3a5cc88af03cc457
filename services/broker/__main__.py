"""`python -m services.broker --config FILE`: a node whose role the group record decides."""

import os

from dittomq.rpc.polling import wait_with_fewer_threads

if __name__ == "__main__":
    wait_with_fewer_threads(os.environ)
    from services.role_supervisor import lives

    lives(None)
