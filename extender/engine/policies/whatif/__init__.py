"""Whether pods that do not exist yet would start now, and if not, when and why."""
