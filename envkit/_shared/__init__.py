"""What several rooms below the wall share, and nothing above it uses."""
