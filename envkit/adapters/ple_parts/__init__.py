"""What `envkit.adapters.ple_wrapper` is made of."""
