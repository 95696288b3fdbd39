"""The worker's side: the code that runs the environments."""
