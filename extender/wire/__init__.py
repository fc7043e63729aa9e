"""The scheduler extender's JSON, version 1, in and out: shapes and nothing else.

This package must not know the API server, HTTP or the clock. Start with `shapes`.
"""
