"""Shared memory, doorbells, sockets and Ctrl-C: what the operating system gives."""
