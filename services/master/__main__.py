"""`python -m services.master --config FILE`."""

from dittomq.broker.role import BrokerService
from services.lives import lives

if __name__ == "__main__":
    lives(BrokerService.MASTER)
