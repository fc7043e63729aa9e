"""Quotas, fair share and admission, and which pending pods are brought back when room comes free."""
