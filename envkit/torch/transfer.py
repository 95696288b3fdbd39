"""Converts arrays to tensors on a device, and back.

On the CPU, a tensor shares the memory of its array. If an environment returns the same
arrays again and again, as a pool with `zero_copy=True` does, their tensors are made
once.

On a GPU, `device` memory, copies start on a separate stream and the caller's stream
waits for them, so the CPU continues at once:

```
kept arrays    their pages are locked once ------------------> device   side stream
other arrays   -> a buffer in locked pages, made once -------> device   side stream
actions        device -> a buffer in locked pages -> its own array       caller's stream
```

Before the environment steps, `wait` waits until all reads have finished.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import as_array, describe, flatten_as
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "Actions",
    "TimeSteps",
    "as_device",
    "block_of",
    "checked_dtypes",
    "tensor_dtype",
]


def as_device(device: Any) -> torch.device:
    """Returns a PyTorch device, with its index if it is a GPU."""
    found = torch.device("cpu" if device is None else device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device must be one that PyTorch has here, got {str(found)!r}, and it "
            "finds no graphics card, or was built without CUDA. Take device='cpu'."
        )
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return found


def tensor_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Returns the dtype of a tensor over an array; `None` if there is none.

    Example:
        >>> tensor_dtype(np.dtype(np.uint8)), tensor_dtype(np.dtype("U5"))
        (torch.uint8, None)
    """
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        return None


def _tensor_over(array: Array) -> torch.Tensor:
    """Returns a tensor in the memory of an array, even a read-only one."""
    if not array.flags.writeable:
        # PyTorch has no read-only memory, and warns about it.
        array = array.view()
        try:
            array.flags.writeable = True
        except ValueError:  # its owner is not writable either
            array = array.copy()
    return _of_writeable(array)


def _of_writeable(array: Array) -> torch.Tensor:
    try:
        return torch.from_numpy(array)
    except ValueError:  # its elements are in reverse order
        return torch.from_numpy(array.copy())


def _lies_in(tensor: torch.Tensor, array: Array) -> bool:
    # Without elements, there is no memory that could change.
    return tensor.data_ptr() == array.ctypes.data or not array.size


def _is_kept(array: Array, tensor: torch.Tensor) -> bool:
    return not array.flags.writeable and _lies_in(tensor, array)


class _Kept:
    """Makes tensors over arrays, and keeps the latest two.

    Only read-only arrays are kept: they are an environment's own, which returns them
    again. A tensor stays valid as long as the array is the same object and the tensor
    uses the array's memory; a new copy is made each time.
    """

    def __init__(self) -> None:
        self._array: Array | None = None
        self._tensor: torch.Tensor | None = None
        self._older: tuple[Array | None, torch.Tensor | None] = None, None

    def tensor(self, array: Array) -> torch.Tensor:
        # Hot: called for each leaf of a time step.
        if array is self._array:
            return self._tensor
        if array.flags.writeable:
            return _of_writeable(array)
        older, tensor = self._older
        if array is not older or tensor is None:
            # Time steps may be read in inference mode, and again in training.
            with torch.inference_mode(False):
                tensor = _tensor_over(array)
            if not _lies_in(tensor, array):
                return tensor
        self._older = self._array, self._tensor
        self._array, self._tensor = array, tensor
        return tensor


class TimeSteps:
    """Converts the leaves of time steps to tensors.

    Attributes:
        structure: The structure of a time step.
        dtypes: The dtype of each leaf's tensors.
        shapes: The shape of each leaf in one row.
    """

    def __init__(
        self, spec: NestedSpec, device: torch.device, dtypes: Mapping[Any, torch.dtype]
    ) -> None:
        """Prepares for time steps of some specs.

        Args:
            spec: The specs of one row's time step.
            device: The device of the tensors.
            dtypes: The tensors' dtypes, by the arrays' dtypes.

        Raises:
            SpecError: PyTorch has no dtype for a leaf.
        """
        self.structure = nest.Structure(spec)
        self.shapes = [leaf.shape for leaf in self.structure.leaves]
        self.dtypes = [
            _checked_dtype(leaf, path, dtypes)
            for leaf, path in zip(
                self.structure.leaves, self.structure.paths, strict=True
            )
        ]
        self._fits = [
            (leaf.dtype, leaf.shape, len(leaf.shape)) for leaf in self.structure.leaves
        ]
        self._casts = [
            (index, dtype)
            for index, (leaf, dtype) in enumerate(
                zip(self.structure.leaves, self.dtypes, strict=True)
            )
            if tensor_dtype(leaf.dtype) != dtype
        ]
        self._kept = [_Kept() for _ in self.dtypes]
        self._device = device
        self._card = _Card(device, len(self.dtypes)) if device.type == "cuda" else None
        # The latest two time steps whose arrays recur: the arrays, and their tensors.
        self._slots: list[tuple[list[Array], list[torch.Tensor]]] = []
        # The same as time steps, if the receiver cannot change any part.
        self._whole: list[tuple[Any, Any]] = []
        is_flat = all(isinstance(part, ArraySpec) for part in spec)
        self._kind = type(spec) if is_flat else None
        self._shares_memory = device.type == "cpu" and not self._casts

    def tensors(self, time_step: Any, call: str) -> Any:
        """Returns a time step of tensors.

        Raises:
            SpecError: The result of `call` does not fit the specs.
        """
        # Hot: called once per step.
        for known, whole in self._whole:
            if type(time_step) is self._kind and (
                time_step[0] is known[0]
                and time_step[1] is known[1]
                and time_step[2] is known[2]
                and time_step[3] is known[3]
            ):
                return whole
        leaves = self._flat(time_step, call)
        for arrays, tensors in self._slots:
            for leaf, array in zip(leaves, arrays, strict=True):
                if leaf is not array:
                    break
            else:
                return self.structure.unflatten(tensors)
        leaves = self._checked(leaves, time_step, call)
        tensors = [
            kept.tensor(leaf) for kept, leaf in zip(self._kept, leaves, strict=True)
        ]
        if self._card is not None:
            tensors = self._card.moved(tensors, leaves, self._casts)
        else:
            if self._device.type != "cpu":
                tensors = [tensor.to(self._device) for tensor in tensors]
            for index, dtype in self._casts:
                tensors[index] = tensors[index].to(dtype)
        if self._shares_memory and all(map(_is_kept, leaves, tensors)):
            self._slots = [(leaves, tensors), *self._slots[:1]]
            if type(time_step) is self._kind:
                whole = self.structure.unflatten(tensors)
                self._whole = [(time_step, whole), *self._whole[:1]]
                return whole
        return self.structure.unflatten(tensors)

    def _flat(self, time_step: Any, call: str) -> list[Any]:
        try:
            return self.structure.flatten(time_step)
        except SpecError:
            self._check(time_step, call)
            raise

    def _checked(self, leaves: list[Any], time_step: Any, call: str) -> list[Array]:
        """Returns the leaves as arrays of their specs' shapes and dtypes."""
        # Hot: called once per step.
        for leaf, (dtype, shape, rank) in zip(leaves, self._fits, strict=True):
            if (
                type(leaf) is not np.ndarray
                or (leaf.dtype is not dtype and leaf.dtype != dtype)
                or leaf.shape[1:] != shape
                or leaf.ndim != rank + 1
            ):
                self._check(time_step, call)
                return [
                    np.asarray(leaf, spec.dtype)
                    for leaf, spec in zip(leaves, self.structure.leaves, strict=True)
                ]
        return leaves

    def _check(self, time_step: Any, call: str) -> None:
        rows = np.shape(getattr(time_step, "step_type", 0))[:1]
        check_fits(
            time_step,
            self.structure.template,
            subject=f"{call} returned a time step that",
            outer_dims=rows or (1,),
        )

    def empty(self, *dims: int) -> Any:
        """Returns a time step of tensors with any values."""
        # They are filled later, in whatever mode.
        with torch.inference_mode(False):
            return self.structure.unflatten(
                [
                    torch.empty((*dims, *shape), dtype=dtype, device=self._device)
                    for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
                ]
            )

    def wait(self) -> None:
        """Waits until the arrays of earlier time steps may be overwritten."""
        # Hot: called once per step.
        if self._card is not None:
            self._card.wait()

    def close(self) -> None:
        """Unlocks the pages that were locked."""
        if self._card is not None:
            self._card.close()


def _checked_dtype(
    spec: ArraySpec, path: str, dtypes: Mapping[Any, torch.dtype]
) -> torch.dtype:
    found = dtypes.get(spec.dtype, tensor_dtype(spec.dtype))
    if found is None or tensor_dtype(spec.dtype) is None:
        raise SpecError(
            f"PyTorch has no tensors for the leaf at {path}, which is {spec!r}. Leave "
            "it out, or turn it into numbers, with a wrapper of envkit.wrappers such "
            "as SelectObservation or TransformObservation."
        )
    return found


class _Card:
    """Copies tensors from the CPU to a GPU."""

    def __init__(self, device: torch.device, count: int) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._done = torch.cuda.Event()
        self._staged: list[torch.Tensor | None] = [None] * count
        # The lengths of locked blocks, by address; and the arrays in them, by identity,
        # which keep their memory in place.
        self._locked: dict[int, int] = {}
        self._holds: dict[int, tuple[Array, bool]] = {}

    def moved(
        self,
        tensors: Sequence[torch.Tensor],
        leaves: Sequence[Array],
        casts: Sequence[tuple[int, torch.dtype]],
    ) -> list[torch.Tensor]:
        """Returns tensors on the GPU; the caller's stream waits for their copies."""
        # Hot: called once per step.
        self.wait()
        sources = [
            tensor if self._is_locked(leaf) else self._stage(index, tensor)
            for index, (tensor, leaf) in enumerate(zip(tensors, leaves, strict=True))
        ]
        caller = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            moved = [tensor.to(self._device, non_blocking=True) for tensor in sources]
            for index, dtype in casts:
                moved[index] = moved[index].to(dtype)
            self._done.record(self._stream)
        caller.wait_event(self._done)
        for tensor in moved:
            # Their memory may be reused only when the caller has finished too.
            tensor.record_stream(caller)
        return moved

    def wait(self) -> None:
        self._done.synchronize()

    def _stage(self, index: int, tensor: torch.Tensor) -> torch.Tensor:
        """Copies a tensor into a buffer in locked pages."""
        buffer = self._staged[index]
        if buffer is None or buffer.shape != tensor.shape:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._staged[index] = buffer
        return buffer.copy_(tensor)

    def _is_locked(self, array: Array) -> bool:
        """Locks the memory of an array that is kept; returns True if it is locked."""
        known = self._holds.get(id(array))
        if known is not None and known[0] is array:
            return known[1]
        # Others come once, or differ in every call.
        if array.flags.writeable or len(self._holds) >= 2 * len(self._staged):
            return False
        is_locked = array.flags.c_contiguous and self._lock(*block_of(array))
        self._holds[id(array)] = array, is_locked
        return is_locked

    def _lock(self, address: int, size: int) -> bool:
        """Locks the pages of a block; a copy must not span two locked blocks."""
        first = address // mmap.PAGESIZE * mmap.PAGESIZE
        stop = -(-(address + size) // mmap.PAGESIZE) * mmap.PAGESIZE
        for other, length in self._locked.items():
            if other <= first and stop <= other + length:
                return True
            if first < other + length and other < stop:
                return False
        result = torch.cuda.cudart().cudaHostRegister(first, stop - first, 0)
        if int(result) != 0:
            # There may be a limit; then the array is staged. CUDA reports the error
            # again with the next operation, which should be a harmless one.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=self._device)
            return False
        self._locked[first] = stop - first
        return True

    def close(self) -> None:
        self.wait()
        for first in self._locked:
            torch.cuda.cudart().cudaHostUnregister(first)
        self._locked.clear()
        self._holds.clear()


def block_of(array: Array) -> tuple[int, int]:
    """Returns address and size of the memory block that contains an array.

    Example:
        >>> block = np.zeros(100, np.uint8)
        >>> block_of(block[10:20]) == (block.ctypes.data, 100)
        True
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    if array.base is not None:
        array = np.frombuffer(array.base, np.uint8)
    return array.ctypes.data, array.nbytes


class Actions:
    """Converts actions from tensors on any device to arrays."""

    def __init__(self, spec: NestedSpec) -> None:
        self._structure = nest.Structure(spec)
        # If an action is one array: the dtype of tensors that may share memory.
        self._dtype = tensor_dtype(spec.dtype) if isinstance(spec, ArraySpec) else None
        self._buffers: list[torch.Tensor | None] = [None] * len(self._structure.leaves)

    def arrays(self, action: NestedArray, call: str) -> NestedArray:
        """Returns a batch of actions as arrays; CPU tensors share memory.

        Integers and floats get the width of their specs if nothing is lost; the
        environment checks everything else.

        Raises:
            SpecError: The structure differs from the spec's.
        """
        # Hot: called once per step. The first case is the usual one.
        if (
            type(action) is torch.Tensor
            and action.dtype is self._dtype
            and action.is_cpu
            and not action.requires_grad
        ):
            return action.numpy()
        subject = f"TorchEnvironment.{call}() was given an action that"
        leaves = flatten_as(self._structure, action, subject=subject, root="action")
        cards, staged = None, []
        for index, leaf in enumerate(leaves):
            # Comparing the class first is faster.
            if type(leaf) is torch.Tensor or isinstance(leaf, torch.Tensor):
                if leaf.requires_grad:
                    leaf = leaf.detach()
                if leaf.is_cuda:
                    cards = {*(cards or ()), leaf.device}
                    leaf = self._staged(index, leaf)
                    staged.append(index)
                elif not leaf.is_cpu:
                    leaf = leaf.cpu()
                leaves[index] = leaf
        for card in cards or ():
            torch.cuda.current_stream(card).synchronize()
        for index in staged:
            # The environment may keep its actions, and the buffer is reused.
            leaves[index] = leaves[index].clone()
        return self._structure.unflatten(
            [
                _as_array(leaf, spec)
                for leaf, spec in zip(leaves, self._structure.leaves, strict=True)
            ]
        )

    def _staged(self, index: int, leaf: torch.Tensor) -> torch.Tensor:
        """Starts to copy a GPU tensor into locked pages."""
        buffer = self._buffers[index]
        if buffer is None or buffer.shape != leaf.shape or buffer.dtype != leaf.dtype:
            buffer = torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True)
            self._buffers[index] = buffer
        return buffer.copy_(leaf, non_blocking=True)


def _as_array(leaf: Any, spec: ArraySpec) -> Array:
    # Hot: called for each leaf of an action.
    if type(leaf) is torch.Tensor or isinstance(leaf, torch.Tensor):
        if leaf.dtype == torch.bfloat16:  # NumPy has no such dtype
            leaf = leaf.float()
        array: Array = leaf.numpy()
    else:
        array = as_array(leaf)
    if array.dtype is spec.dtype or array.dtype == spec.dtype:
        return array
    kind = spec.dtype.kind
    if array.dtype.kind != kind or kind not in "iuf":
        return array
    cast = array.astype(spec.dtype)
    return cast if kind == "f" or np.array_equal(cast, array) else array


def checked_dtypes(dtypes: Any) -> dict[np.dtype[Any], torch.dtype]:
    """Returns a dictionary from arrays' dtypes to tensors' dtypes.

    Example:
        >>> checked_dtypes({"float64": torch.float32})
        {dtype('float64'): torch.float32}
    """
    must = (
        "dtypes must be a dictionary of NumPy's dtypes and PyTorch's, such as "
        "{np.float64: torch.float32}, got"
    )
    if dtypes is None:
        return {}
    if not isinstance(dtypes, Mapping):
        raise TypeError(f"{must} {describe(dtypes)}.")
    for key, value in dtypes.items():
        if not isinstance(value, torch.dtype):
            raise TypeError(f"{must} {value!r} for {key!r}.")
    try:
        return {np.dtype(key): value for key, value in dtypes.items()}
    except TypeError as error:
        raise TypeError(f"{must} {dtypes!r}.") from error
