"""What the states of environments are made of that are pickled."""
