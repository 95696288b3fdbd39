"""`PassiveChecker`, and what it looks at."""
