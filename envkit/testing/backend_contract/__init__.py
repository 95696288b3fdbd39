"""What `check_backend` looks at, by subject; the table of promises is `table`."""
