"""What gin needs to know of envkit."""
