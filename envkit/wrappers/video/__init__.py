"""`RecordVideo`, and how films are written."""
