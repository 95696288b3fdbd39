"""`SharedSlab`: a slab in memory that other processes can map, or look at."""

from __future__ import annotations

from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.shared_memory import SharedBlock

__all__ = ["SharedSlab"]


class SharedSlab:
    """Owns the memory of a backend's slab; `envkit top` finds it there.

    Attributes:
        fd: The descriptor of the memory, by which workers map it; -1 before there are
            rows.

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
        """Has no memory until rows are laid out."""
        self._slab: Slab | None = None
        self._block: SharedBlock | None = None
        self.fd = -1

    def lay_out(self, layout: SlabLayout) -> Slab:
        """Makes a slab in new memory, with the rows of the one before.

        Args:
            layout: Where its arrays lie.

        Returns:
            The slab. Arrays of the one before stay valid for those who have them.

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
        """Writes behind the rows what tells other processes whose they are."""
        if self._block is not None:
            self._block.write_behind(plate)

    def close(self) -> None:
        """Gives the descriptor back; arrays over the memory stay valid."""
        if self._block is not None:
            self._block.close()
        self._block = self._slab = None
        self.fd = -1
