"""Types that all layers above share: events, effects, refusals, settings, the clock, pod requests, sliced work."""
