"""Nodes reserved for the heads of queues; workloads behind them pass if they do not delay them."""
