"""What is due to each tenant, who may start, and whose turn it is."""
