"""Who has to go so that somebody of higher priority fits."""
