"""Room that is reserved for the first in line; those behind it pass as far as they do not delay it."""
