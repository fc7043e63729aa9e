"""Quotas, fair share and admission, and which pending pods are requeued when capacity becomes free."""
