"""The cycle: events, ticks, filter, preempt and bind, and the components that they call."""
