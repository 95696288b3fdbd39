"""Where the runners of a pool live: here, in threads, in processes."""
