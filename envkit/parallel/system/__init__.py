"""Shared memory, doorbells, sockets and Ctrl-C, as the operating system offers them."""
