"""What-if for people: reads the question, has the engine answer it in slices, and puts the answer into words."""
