"""`python -m services.slave --config FILE`."""

import os

from dittomq.rpc.polling import wait_with_fewer_threads

if __name__ == "__main__":
    wait_with_fewer_threads(os.environ)
    from dittomq.broker.role import BrokerService
    from services.role_supervisor import lives

    lives(BrokerService.SLAVE)
