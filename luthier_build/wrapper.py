"""`luthier-hipcc` and `luthier-cc`: run an existing compile command, with Luthier's plugin if it generates device code.

Both are small native programs (runtime/native/launcher), which analyse the command. They start this module, as
`luthier-wrapper`, for compilers that are not in the cache, for options of Luthier's own, and to find the real hipcc.

Both finally replace themselves with the compiler (`exec`), without a shell: its exit code, signals and output are its
own. It gets Luthier's flags, then the given arguments unchanged. A command that generates no device code is not given
the plugin, so preprocessing, dependency scans and configure probes do not need it.

Only the standard library is imported until a plugin has to be found for a compiler seen for the first time.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from luthier_build.own_commands import is_wrapper
from luthier_build.wrapper_tables import ANSWER_FORMAT, HASH_FACTOR, HASH_START, PLUGIN_FLAGS, STARTED, VARIABLES

NOTHING, READS, GENERATES = VERDICTS = ("nothing", "reads", "generates")
"""Verdicts of the native programs on a compile command: it reads no HIP source; it reads some, but generates no device
code, so that it only needs the device headers; it generates device code."""


def _state(path: str) -> list[str]:
    """Return path, size and time of the last change: they show whether a file was replaced."""
    state = os.stat(path)
    return [path, str(state.st_size), str(state.st_mtime_ns)]


def _home() -> str:
    """Return the folder of the commands, which stands for this installation of Luthier."""
    if os.path.basename(sys.argv[0]).startswith("luthier-"):
        return os.path.dirname(os.path.realpath(sys.argv[0]))
    import sysconfig

    return os.path.realpath(sysconfig.get_path("scripts"))


def _question(compiler: str) -> bytes:
    """Return everything that the plugin for a compiler depends on and that is known before the search."""
    variables = (f"{name}={os.environ[name]}" if name in os.environ else name for name in VARIABLES)
    return os.fsencode("\n".join([*_state(compiler), _home(), *variables]))


def _answer_file(question: bytes) -> Path:
    from luthier_build.cache import cache_dir

    name = HASH_START
    for byte in question:  # FNV-1a, which takes a line in C++; the question itself is in the file
        name = (name ^ byte) * HASH_FACTOR % (1 << 64)
    return cache_dir("wrapper") / f"{name:016x}.answer"


def plugin_and_headers(compiler: str) -> tuple[str, str]:
    """Return (plugin, include folder) for a compiler.

    They are cached, and found again when the compiler, settings or Luthier changed.

    Args:
        compiler: its path. Links are not resolved, because they may choose what a program does (ccache's do).

    Raises:
        BuildError: the compiler is not clang, or the plugin cannot be built for it.
    """
    from luthier.cache.folder import is_own, require_own
    from luthier.errors import CacheError

    compiler = os.path.abspath(compiler)
    question = _question(compiler)
    path = _answer_file(question)
    try:
        if not is_own(path):
            raise OSError  # missing, or another user could choose a library that the compiler loads
        form, asked, plugin, include, *states, end = path.read_bytes().split(b"\0")[:-1]
        listed = [os.fsdecode(part) for part in states]
        known = [listed[at : at + 3] for at in range(0, len(listed), 3)]
        whole = form == end == ANSWER_FORMAT.encode() and asked == question
        if whole and known and all(_state(state[0]) == state for state in known):
            require_own(Path(os.fsdecode(plugin)))
            return os.fsdecode(plugin), os.fsdecode(include)
    except (OSError, ValueError, IndexError, CacheError):
        pass
    return _find_plugin(compiler, question, path)


def _find_plugin(compiler: str, question: bytes, answer: Path) -> tuple[str, str]:
    """Find the plugin and write the answer: format, question, plugin, include folder, the state of each file on which
    they depend, and the format again. A zero byte ends each part. runtime/native/launcher reads this file, too."""
    from luthier.errors import BuildError

    from luthier_build import plugin as plugin_module
    from luthier_build.cache import drop_if_foreign, keep_own
    from luthier_build.plugin import include_dir, plugin_for
    from luthier_build.toolchain import Toolchain, plugin_sources
    from luthier_build.workspace import write_atomic

    clang = clang_beneath(compiler)
    toolchain = Toolchain.find({**os.environ, "LUTHIER_CLANG": clang})
    plugin, include = str(plugin_for(toolchain)), str(include_dir())
    sources = plugin_sources() / "src"
    files = [
        os.path.realpath(clang),
        plugin,
        plugin_module.__file__,
        str(sources),
        *(str(path) for path in sorted(sources.iterdir())),
    ]
    fields = [plugin, include, *(part for path in files for part in _state(path))]
    with contextlib.suppress(BuildError):  # a read-only cache: asked again next time
        drop_if_foreign(answer)
        form = ANSWER_FORMAT.encode()
        write_atomic(answer, b"\0".join([form, question, *map(os.fsencode, fields), form, b""]))
        keep_own(answer)
    return plugin, include


def clang_beneath(compiler: str) -> str:
    """Return the clang that a compiler driver, wrapper or launcher finally runs, from the output of its ``-###``.

    Raises:
        BuildError: it does not run clang.
    """
    from luthier.errors import BuildError
    from luthier.support.processes import run

    printed: list[str] = []
    probe = [
        "-###",
        "-x",
        "hip",
        "--cuda-device-only",
        "--offload-arch=gfx906",
        "-nogpulib",
        "-nogpuinc",
        "-c",
        os.devnull,
    ]
    run([compiler, *probe, "-o", os.devnull], warnings=printed.append)
    for line in "".join(printed).splitlines():
        words = shlex.split(line) if line.lstrip().startswith('"') else []
        if "-cc1" in words:
            return words[0]
    raise BuildError(f"{compiler} does not run clang for HIP: Luthier's plugin is for clang, hipcc and amdclang++")


def added_flags(compiler: str, arguments: Sequence[str], verdict: str) -> list[str]:
    """Return the flags to insert before `arguments`, which have one of the `VERDICTS`; empty if none are needed."""
    if verdict == NOTHING or any(_loads_plugin(argument) for argument in arguments):
        return []
    path = shutil.which(compiler)
    if path is None:
        return []  # exec reports the error
    if is_wrapper(path):
        return []  # it adds them itself
    if verdict == READS:
        from luthier_build.plugin import include_dir

        return [f"-I{include_dir()}"]
    plugin, include = plugin_and_headers(path)
    return flags_for(plugin, include)


def flags_for(plugin: str, include: str) -> list[str]:
    """Return flags that load `plugin` where device code is generated.

    Compiler caches do not hash ``-fpass-plugin``, and dependency files do not list it: ``-fplugin`` of the same file
    and a dependency entry handle both.
    """
    return [*(f"{flag}{plugin}" if flag.endswith("=") else flag for flag in PLUGIN_FLAGS), f"-I{include}"]


def _loads_plugin(argument: str) -> bool:
    """Return whether the flag loads Luthier's plugin, as added by an outer wrapper."""
    return argument.startswith("-fpass-plugin=") and os.path.basename(argument).startswith("luthier-llvm")


def find_hipcc() -> str:
    """Return the first hipcc (or amdclang++) that is not `luthier-hipcc` itself.

    Raises:
        BuildError: there is none.
    """
    from luthier.errors import BuildError

    passed = os.environ.get(STARTED, "").split(os.pathsep)
    named = os.environ.get("LUTHIER_HIPCC")
    if named:
        path = shutil.which(named)
        if path and (path in passed or is_wrapper(path)):
            raise BuildError(f"LUTHIER_HIPCC is {named}, which starts luthier-hipcc: name the real hipcc")
        return named
    rocm = os.environ.get("ROCM_PATH", "/opt/rocm")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = []
    for name in ("hipcc", "amdclang++"):
        for folder in [*filter(None, folders), f"{rocm}/bin"]:
            path = shutil.which(os.path.join(folder, name))
            if path is None:
                continue
            if path not in passed and not is_wrapper(path):
                return path
            own.append(path)
    raise BuildError(
        "no hipcc or amdclang++ found"
        + (f" except {own[0]}, which is luthier-hipcc" if own else "")
        + ": set LUTHIER_HIPCC, or install ROCm (on Debian: apt install hipcc)"
    )


def _execute(name: str, command: Sequence[str], at: int, verdicts: Sequence[str]) -> int:
    """Add flags and become the compiler; return only to report an error or after showing what would be done.

    Args:
        at: index of the compiler in the command without Luthier's options.
        verdicts: for a compiler that treats C++ sources as C++, and for one that treats them as HIP.
    """
    show = [argument for argument in command if argument.startswith("--luthier-")]
    plain = [argument for argument in command if not argument.startswith("--luthier-")] or [""]
    compiler, arguments = plain[at], plain[at + 1 :]
    verdict = verdicts["hipcc" in Path(compiler).name]
    try:
        if show:
            return _show(name, show, plain[:at], compiler, arguments, verdict)
        flags = added_flags(compiler, arguments, verdict)
    except Exception as problem:
        from luthier.errors import LuthierError

        if not isinstance(problem, LuthierError):
            raise
        return _fail(f"{name}: error: {problem}", 1)
    full = [*plain[:at], compiler, *flags, *arguments]
    sys.stdout.flush()
    _restore_signals_and_locale()
    try:
        os.execvp(full[0], full)
    except OSError as problem:
        return _fail(f"{name}: error: cannot run {full[0]}: {problem.strerror}", 127)


def _restore_signals_and_locale() -> None:
    """Restore what Python changed for itself: signals that it ignores, and the locale C (PEP 538)."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        for variable in Path("/proc/self/environ").read_bytes().split(b"\0"):  # the environment at the start
            if variable.startswith(b"LC_CTYPE="):
                os.environb[b"LC_CTYPE"] = variable.partition(b"=")[2]
                return
        os.environ.pop("LC_CTYPE", None)


def _fail(text: str, status: int) -> int:
    from luthier.terminal import say_text

    say_text(text, file=sys.stderr)
    return status


def _show(
    name: str, show: Sequence[str], launchers: Sequence[str], compiler: str, arguments: Sequence[str], verdict: str
) -> int:
    from luthier.terminal import say_raw

    if show == ["--luthier-show"]:
        say_raw(shlex.join([*launchers, compiler, *added_flags(compiler, arguments, verdict), *arguments]))
    elif show == ["--luthier-showme:compile"]:
        path = shutil.which(compiler) or compiler
        say_raw(shlex.join(flags_for(*plugin_and_headers(path))))
    elif show == ["--luthier-showme:link"]:
        say_raw("")  # the embedded bitcode needs no linker flags
    elif show == ["--luthier-cmakedir"]:
        from luthier_build.__main__ import cmake_dir

        say_raw(cmake_dir())
    else:
        known = "--luthier-show, --luthier-showme:compile, --luthier-showme:link, --luthier-cmakedir"
        return _fail(f"{name}: error: give one of {known}, not {' '.join(show)}", 2)
    return 0


def _hipcc(arguments: Sequence[str], verdicts: Sequence[str]) -> int:
    """Run ``luthier-hipcc``, which replaces hipcc or amdclang++."""
    from luthier.errors import LuthierError

    try:
        compiler = find_hipcc()
    except LuthierError as problem:
        return _fail(f"luthier-hipcc: error: {problem}", 1)
    os.environ[STARTED] = os.pathsep.join(filter(None, [os.environ.get(STARTED), compiler]))
    return _execute("luthier-hipcc", [compiler, *arguments], 0, verdicts)


def main() -> int:
    """Run ``luthier-wrapper`` with the arguments that runtime/native/launcher/launcher.cpp documents."""
    kind, at = sys.argv[1:3] if len(sys.argv) > 4 else ("", "")
    verdicts, command = sys.argv[3:5], sys.argv[5:]
    if kind not in ("hipcc", "cc") or not at.isdecimal() or not {*verdicts} <= {*VERDICTS}:
        return _fail("luthier-wrapper is started by luthier-hipcc and luthier-cc: use one of these", 2)
    if kind == "hipcc":
        return _hipcc(command, verdicts)
    if not command:
        return _fail("usage: luthier-cc [--luthier-show] [ccache] COMPILER [ARGUMENT ...]", 2)
    return _execute("luthier-cc", command, int(at), verdicts)
