"""Machine code by symbol: compiled in batches on first use and kept on disk for the user."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Collection, Iterable

from luthier.emulator.ir.variant import FusedKey, Variant
from luthier.emulator.native.nativecode import CodeSpace, NativeCode, called_by, functions_of
from luthier.emulator.native.store import store
from luthier.errors import DeviceError


class MachineCode:
    """All compiled operations of this process. One instance serves every device; thread-safe.

    The store on disk maps the hash of an image to the image, and each symbol to the hash of its image.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, int] = {}
        self._loaded: dict[bytes, NativeCode] = {}
        self._refusals: dict[str, str] = {}
        self._space: CodeSpace | None = None
        self.compiled = 0
        """Number of functions that this process compiled instead of loading."""

    def load_into(self, space: CodeSpace) -> None:
        """Load all later code into `space` for other processes; this process then cannot execute it.

        Raises:
            DeviceError: this process has loaded code already.
        """
        with self._lock:
            if self._loaded:
                raise DeviceError("this process has loaded machine code already")
            self._space = space

    def addresses(
        self, symbols: Iterable[str], variant_of: Callable[[str], Variant | FusedKey], *, calls: bool = True
    ) -> dict[str, int]:
        """Return the host address of each symbol's function; compile functions that are not kept.

        Symbols with a `refusal` have none.

        Args:
            variant_of: called only for symbols that must be compiled.
            calls: whether code may call C functions; if not, such code is refused.

        Raises:
            Exception: raised by a semantic function; a note names the variant.
        """
        wanted = set(symbols)
        with self._lock:
            self._load(wanted - self._addresses.keys())
            missing = sorted(wanted - self._addresses.keys() - self._refusals.keys())
            if missing:
                self._compile([variant_of(symbol) for symbol in missing], calls)
            return {symbol: self._addresses[symbol] for symbol in wanted if symbol in self._addresses}

    def address(self, variant: Variant) -> int:
        """Return the host address of a function that cannot be refused."""
        return self.addresses([variant.symbol], lambda symbol: variant)[variant.symbol]

    def refusal(self, symbol: str) -> str:
        """Return the reason why a symbol has no function."""
        return self._refusals[symbol]

    def _compile(self, variants: list[Variant | FusedKey], calls: bool) -> None:
        from luthier.emulator.native.compiler import compile_variants

        images, refusals = compile_variants(variants)
        self._refusals |= refusals
        if not calls:
            calling = [image for image in images if called_by(image)]
            self._refusals |= {name: "it calls C functions" for image in calling for name in functions_of(image)}
            images = [image for image in images if image not in calling]
        self._add_compiled(images)

    def _add_compiled(self, images: Iterable[bytes]) -> None:
        kept: dict[bytes, bytes] = {}
        for image in images:
            key = b"image " + hashlib.sha256(image).hexdigest().encode()
            names = self._add(key, image)
            self.compiled += len(names)
            kept |= {key: image, **{_under(name): key for name in names}}
        keeper = store()
        if keeper is not None:
            keeper.put(kept)

    def _add(self, key: bytes, image: bytes) -> Collection[str]:
        code = self._loaded[key] = NativeCode(image, self._space)
        for name, address in code.symbols.items():
            self._addresses.setdefault(name, address)
        return code.symbols

    def _load(self, names: set[str]) -> None:
        """Load the kept images that define any of the names."""
        keeper = store()
        if keeper is None or not names:
            return
        keys = set(keeper.get(map(_under, names)).values())
        for key, image in keeper.get(keys - self._loaded.keys()).items():
            self._add(key, image)


def _under(symbol: str) -> bytes:
    return f"symbol {symbol}".encode()


@functools.cache
def machine_code() -> MachineCode:
    """Return the process's machine code."""
    return MachineCode()
