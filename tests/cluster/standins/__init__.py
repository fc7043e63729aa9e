"""Programs that take the place of other vendors' in the tests."""
