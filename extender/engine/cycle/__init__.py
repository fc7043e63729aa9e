"""The cycle: events, ticks, filter, prioritize, preempt and bind, and the components that they call."""
