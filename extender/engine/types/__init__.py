"""What the layers above speak in: events and effects, reasons, settings, the clock, requests, sliced work."""
