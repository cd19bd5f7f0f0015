"""Exact peak of the bytes that live tensors hold: deterministic, unlike a process's memory."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Follows the storages that operators return while it is open; ``peak`` is in bytes.

    Tensors from before count nothing; what kernels allocate for themselves is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._before: set[int] = set()

    def ignore(self, *modules: torch.nn.Module) -> "LiveBytes":
        """Do not count the parameters and buffers of ``modules`` when operators return views."""
        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                self._before.add(tensor.untyped_storage().data_ptr())
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self._follow(value.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known or storage.data_ptr() in self._before:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.live -= size
