"""Code that several rooms below the wall share, and that nothing above it uses."""
