"""The budgets, measured: `make bench` prints a table with each figure beside its mark. Nothing here is a unit test."""
