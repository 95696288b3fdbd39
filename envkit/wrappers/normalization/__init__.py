"""Running statistics, and wrappers that normalise with them."""
