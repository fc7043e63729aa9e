"""The one way in which a user command fails: a sentence on standard error and exit status 1."""


class CommandError(Exception):
    """Says what was wrong and what to do; shown to the user as it is."""
