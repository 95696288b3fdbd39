"""`SharedSlab`: a slab in memory that other processes can map or read."""

from __future__ import annotations

from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.shared_memory import SharedBlock

__all__ = ["SharedSlab"]


class SharedSlab:
    """Owns the memory of a backend's slab, which `envkit top` can find.

    Attributes:
        fd: The descriptor of the memory, which workers map; -1 before there are rows.

    Example:
        >>> from envkit.envs import CartPole
        >>> from envkit.specs import EnvironmentSpec
        >>> spec = EnvironmentSpec.of(CartPole())
        >>> memory = SharedSlab()
        >>> memory.lay_out(SlabLayout(spec, blocks=((0, 2),))).layout.rows
        2
        >>> memory.lay_out(SlabLayout(spec, blocks=((0, 2), (2, 3)))).layout.rows
        3
        >>> memory.close()
    """

    def __init__(self) -> None:
        """Starts without memory; `lay_out` makes it."""
        self._slab: Slab | None = None
        self._block: SharedBlock | None = None
        self.fd = -1

    def lay_out(self, layout: SlabLayout) -> Slab:
        """Makes a slab in new memory, with the rows of the previous one.

        Args:
            layout: The layout of its arrays.

        Returns:
            The slab. Arrays over the previous one stay valid.

        Raises:
            MemoryError: There is not that much memory.
        """
        before, old = self._slab, self._block
        self._block = SharedBlock.create(layout.size)
        self.fd = self._block.fd
        self._slab = Slab(layout, self._block.buffer)
        if before is not None:
            self._slab.adopt(before)
        if old is not None:
            old.write_nothing_behind()
            old.close()
        return self._slab

    def publish(self, plate: bytes) -> None:
        """Writes the published facts behind the rows, for other processes."""
        if self._block is not None:
            self._block.write_behind(plate)

    def close(self) -> None:
        """Closes the descriptor; arrays over the memory stay valid."""
        if self._block is not None:
            self._block.close()
        self._block = self._slab = None
        self.fd = -1
