"""Compile loops, and keep their machine code in a folder between processes.

``compiled`` is ``numba.njit`` with another cache. Numba's cache keeps pickles beside the sources.
It trusts the files it finds, fails if the folder is not writable, and can mix up the files of
processes that compile at the same time. This cache differs:

- The files are in a folder that only the user can write to. This is checked before every use.
- One file holds one compiled function and a checksum. A file that is incomplete, damaged or made
  from other sources is ignored, and the function is compiled in memory.
- If the cache is not writable, the function is compiled in memory.
- A function runs the same instructions in the process that compiled it and in one that loaded it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pickle
import secrets
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias

import numba
from llvmlite.binding import Linkage
from numba.core.caching import CompileResultCacheImpl, NullCache
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler, CompileResult
from numba.core.cpu import CPUContext
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.core.typing.templates import Signature

from credibly.memory_limits import address_space_left

Function: TypeAlias = Callable[..., Any]

_COMPILING = RLock()
_MAGIC = b"credibly kernel 2\n"
_NEEDED = 12 * 2**20
"""Bytes of address space that loading a function may take; compiling one takes more."""

_VECTORMATH = Path(__file__).with_name("vectormath.py")  # any kernel may contain its functions


def compiled(**options: Any) -> Callable[[Function], Any]:
    """Return a decorator that compiles a function and caches its machine code on disk.

    Args:
        **options: the options of ``numba.njit``, without ``cache``.

    Example:
        >>> @compiled(error_model="numpy")
        ... def twice(x):
        ...     return 2 * x
        >>> twice(21)
        42
    """

    def decorate(function: Function) -> Any:
        # Nothing calls the wrapper for C, and it would contain a second copy of the function.
        jit: Any = numba.njit
        dispatcher = jit(no_cfunc_wrapper=True, pipeline_class=_Compiler, **options)(function)
        if isinstance(dispatcher, Dispatcher):  # with NUMBA_DISABLE_JIT it is a plain function
            # As `Dispatcher.enable_caching` does; numba has no public way to set another cache.
            vars(dispatcher)["_cache"] = KernelCache(function)
            vars(dispatcher)["compile"] = _one_at_a_time(dispatcher.compile)
        return dispatcher

    return decorate


def _one_at_a_time(compile: Function) -> Function:
    # Numba locks only after it counts, so two threads can raise an AttributeError.
    def locked(signature: Signature) -> Any:
        with _COMPILING:
            return compile(signature)

    return locked


def cache_folder() -> Path | None:
    """Return the folder of compiled code, or None if no folder is safe; make it if necessary.

    The folder is ``NUMBA_CACHE_DIR`` if that is set, else ``credibly/kernels`` in the user's cache
    folder. It must belong to the user or to root. Others must not be able to write to it or to any
    folder above it.
    """
    named = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    return _trusted_folder(os.path.abspath(named) if named else _user_cache())


def _user_cache() -> str | None:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Without a home folder, `expanduser` does not replace `~`.
    return os.path.join(base, "credibly", "kernels") if os.path.isabs(base) else None


@cache
def _trusted_folder(folder: str | None) -> Path | None:
    if folder is None:
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = Path(os.path.realpath(folder))
        trusted = _only_ours(path)
    except (OSError, ValueError):
        return None
    return path if trusted else None


def _only_ours(folder: Path) -> bool:
    """Return whether only this user and root can write to ``folder``."""
    if os.name != "posix":  # on Windows, an access list protects the user's cache folder
        return True
    about = folder.stat()
    # A folder of root is accepted: container images can be built with a filled cache.
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
        return False
    for parent in folder.parents:
        about = parent.stat()
        # In a sticky folder such as /tmp, others cannot rename or remove our files.
        open_to_others = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
        if about.st_uid not in (0, os.geteuid()) or open_to_others:
            return False
    return True


@cache
def _announce() -> None:
    """Print once per process, on a terminal only, that the first use takes longer."""
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    if not (console.is_terminal or console.is_jupyter):
        return
    if cache_folder() is None:
        often = (
            "in every process, since no folder of yours can keep the result: set NUMBA_CACHE_DIR"
        )
    else:
        often = "once; `credibly warmup` does it ahead of time"
    text = f"credibly: compiling loops for this processor, which takes some seconds, {often}."
    console.print(text, markup=False, highlight=False)


class _Library(JITCodeLibrary):
    """The machine code of a function, with private copies of the functions it calls.

    Numba marks such copies as weak symbols. In the process that compiles, the linker then takes
    the version that was compiled alone. In a process that loads the file, it takes the copy beside
    the caller. The two are optimized differently, so their sums are rounded differently.
    """

    def _finalize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = "internal"
        super()._finalize_final_module()


class _Compiler(Compiler):
    """Numba's compiler, with ``_Library`` as the library of the result."""

    def define_pipelines(self) -> Any:
        state: Any = self.state
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class _Code(CompileResultCacheImpl):
    """Numba's conversion between compiled functions and plain values, without its files."""

    def __init__(self, function: Function) -> None:
        self._locator: Any = self
        self._py_file = function.__code__.co_filename
        self._lineno = function.__code__.co_firstlineno


class KernelCache(NullCache):
    """The compiled forms of one function, one file per signature, processor and source text."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._code = _Code(function)

    def load_overload(self, sig: Signature, target_context: CPUContext) -> Any:
        """Return the compiled function for a signature, or None without a valid file."""
        if address_space_left() < _NEEDED:
            raise MemoryError  # without this, LLVM would end the process
        target_context.refresh()
        # Whatever is wrong with a file, the function can be compiled again.
        with suppress(Exception):
            key = self._key(sig, target_context.codegen())
            path = self._path(key)
            if path is not None:
                found, code = _read(path)
                if found == key:
                    return self._code.rebuild(target_context, code)
        _announce()
        return None

    def save_overload(self, sig: Signature, cres: CompileResult) -> None:
        """Store a compiled function, if possible."""
        if not self._code.check_cachable(cres):
            return
        with suppress(Exception):
            key = self._key(sig, cres.codegen)
            path = self._path(key)
            if path is not None:
                _write(path, (key, self._code.reduce(cres)))

    def _path(self, key: object) -> Path | None:
        folder = cache_folder()
        if folder is None:
            return None
        name = f"{self._function.__module__}.{self._function.__qualname__}"
        name = name.replace("<", "").replace(">", "")[-100:]
        return folder / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.kernel"

    def _key(self, sig: Signature, codegen: JITCPUCodegen) -> tuple[object, ...]:
        return (
            _versions(),
            _sources(self._function),
            self._function.__code__.co_firstlineno,
            hashlib.sha256(_identity(self._function)).hexdigest(),
            sig,
            codegen.magic_tuple(),
        )


@cache
def _versions() -> tuple[str, ...]:
    llvm = importlib.metadata.version("llvmlite")
    return sys.version, numba.__version__, llvm  # type: ignore[attr-defined]


def _identity(function: Function) -> bytes:
    """Return the bytecode of a function and of every function and value that it refers to."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    parts = [
        _identity(value.py_func) if isinstance(value, Dispatcher) else dumps(value)
        for value in held
    ]
    return b"\0".join([function.__qualname__.encode(), function.__code__.co_code, *parts])


@cache
def _sources(function: Function) -> str:
    """Return a digest of the source files of a function and of the functions it may call."""
    files, seen = {str(_VECTORMATH)}, set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        files.add(each.__code__.co_filename)
        held = [cell.cell_contents for cell in each.__closure__ or ()]
        used = [*each.__globals__.values(), *held]
        waiting += [value.py_func for value in used if isinstance(value, Dispatcher)]
    digests = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in sorted(files)]
    return " ".join(digests)


def _write(path: Path, content: object) -> None:
    payload = dumps(content)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path) -> Any:
    content = path.read_bytes()
    head = len(_MAGIC)
    digest, payload = content[head : head + 32], content[head + 32 :]
    if not content.startswith(_MAGIC) or hashlib.sha256(payload).digest() != digest:
        raise ValueError(f"{path} is damaged")
    return pickle.loads(payload)
