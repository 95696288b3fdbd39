"""Operating system services: shared memory, doorbells, sockets and Ctrl-C."""
