"""The promises of an environment, one function for each, by subject."""
