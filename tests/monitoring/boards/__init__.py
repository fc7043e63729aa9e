"""What each dashboard shows."""

from tests.monitoring.boards import bill, cluster, gangs, node, queues
from tests.monitoring.grafana import Dashboard

ALL: tuple[Dashboard, ...] = (cluster.BOARD, queues.BOARD, gangs.BOARD, node.BOARD, bill.BOARD)
