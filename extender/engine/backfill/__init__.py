"""Room that is kept for the first in line: those behind it pass as far as they do not make it wait longer."""
