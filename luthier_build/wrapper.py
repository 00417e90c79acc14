"""`luthier-hipcc` and `luthier-cc`: an existing compile command, with Luthier's plugin where device code is generated.

Those two are small native programs (runtime/native/launcher) that do by themselves what this module has done before and
remembered; this is `luthier-wrapper`, which they start for all else.

Both end by replacing themselves with the compiler (`exec`): its exit code, signals and output are its own, no shell is
involved, and the arguments given are passed on as they are, after Luthier's flags. A command that generates no device
code is not given the plugin, so preprocessing, dependency scans and configure probes do not need it.

Only the standard library is imported until a plugin has to be found for a compiler seen for the first time.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import shlex
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from luthier_build.own_commands import is_wrapper
from luthier_build.wrapper_tables import (
    ANSWER_FORMAT,
    HASH_FACTOR,
    HASH_START,
    HIP_SUFFIXES,
    HIPCC_SUFFIXES,
    HOST_ONLY,
    LAUNCHERS,
    NO_CODE,
    NOT_HOST_ONLY,
    ONLY_ASKING,
    PLUGIN_FLAGS,
    STARTED,
    VARIABLES,
    WITH_VALUE,
)


@dataclass(frozen=True)
class Analysis:
    """Analysis of a compile command, as far as the wrapper needs it."""

    generates_device_code: bool
    reads_hip: bool
    """HIP sources are read, if only to preprocess them: the device headers are wanted."""


def expand(arguments: Iterable[str], within: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
    """Yield the arguments as clang sees them: response files (``@file``) read, except for those that it cannot read.

    Args:
        within: the response files that the arguments are in.

    Raises:
        BuildError: one is a pipe.
    """
    for argument in arguments:
        if not argument.startswith("@"):
            yield argument
            continue
        try:
            state = os.stat(argument[1:])
            file = state.st_dev, state.st_ino
            inner = None if file in within else _tokens(_read_response(argument[1:], state.st_mode))
        except (OSError, UnicodeError):
            inner = None  # an ordinary argument, or an error of the compiler's
        if inner is None:
            yield argument
        else:
            yield from expand(inner, (*within, file))


def _read_response(path: str, mode: int) -> str:
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        from luthier.errors import BuildError

        raise BuildError(f"@{path} is no regular file: the compiler could not read it once more; write it to a file")
    data = Path(path).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    return os.fsdecode(data.removeprefix(codecs.BOM_UTF8))


def _tokens(text: str) -> Iterator[str]:
    """Yield the words of a response file as LLVM takes them apart: a backslash escapes any character, in both kinds of
    quotes, too, and what is not closed ends with the file."""
    word, quote = None, ""
    characters = iter(text)
    for one in characters:
        if not quote and one in " \t\r\n":
            if word is not None:
                yield word
            word = None
            continue
        word = word or ""
        if one == "\\":
            word += next(characters, one)
        elif one == quote:
            quote = ""
        elif not quote and one in "'\"":
            quote = one
        else:
            word += one
    if word is not None:
        yield word


def analyse(arguments: Sequence[str], *, hipcc: bool) -> Analysis:
    """Look at a compile command without the compiler's name.

    Args:
        hipcc: the compiler is hipcc, which takes C++ sources for HIP.
    """
    suffixes = HIPCC_SUFFIXES if hipcc else HIP_SUFFIXES
    language: str | None = None
    found_hip = only_files = False
    no_code = asks = host_only = False
    words = expand(arguments)
    for number, word in enumerate(words):
        if not number and word.startswith("-cc1"):
            return Analysis(False, False)  # not the driver, which has asked for it, or somebody who knows all of it
        if only_files or not word.startswith("-") or word == "-":
            untold = language in (None, "none") and os.path.splitext(word)[1] in suffixes
            found_hip = found_hip or untold or language in ("hip", "hip-cpp-output")
        elif word == "--":
            only_files = True
        elif word in ONLY_ASKING:
            asks = True
        elif word in NO_CODE:
            no_code = True
        elif word in HOST_ONLY or word in NOT_HOST_ONLY:
            host_only = word in HOST_ONLY
        elif word in ("-x", "--language"):
            language = next(words, None)
        elif word.startswith(("-x", "--language=")):
            language = word.removeprefix("-x").removeprefix("--language=")
        elif word in WITH_VALUE or word.startswith("-Xarch_"):
            next(words, None)
    return Analysis(found_hip and not asks and not no_code and not host_only, found_hip and not asks)


def split_launchers(command: Sequence[str]) -> int:
    """Index of the compiler in ``[ccache …] compiler argument…``."""
    index = 0
    while index + 1 < len(command) and Path(command[index]).name in LAUNCHERS:
        index += 1
        while index + 1 < len(command) and (command[index].startswith("-") or "=" in command[index]):
            index += 1  # the launcher's own options and settings
    return index


def _state(path: str) -> list[str]:
    """Return path, size and time of the last change, which show that a file is another one."""
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

    They are cached, and found anew when compiler, settings or Luthier changed.

    Args:
        compiler: as found on the path. Links are kept, for they may choose what a program does (ccache's do).

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
            raise OSError  # not there, or whoever wrote it chooses a library that the compiler loads
        form, asked, plugin, include, *states, end = path.read_bytes().split(b"\0")[:-1]
        listed = [os.fsdecode(part) for part in states]
        known = [listed[at : at + 3] for at in range(0, len(listed), 3)]
        whole = form == end == ANSWER_FORMAT.encode() and asked == question
        if whole and known and all(_state(it[0]) == it for it in known):
            require_own(Path(os.fsdecode(plugin)))
            return os.fsdecode(plugin), os.fsdecode(include)
    except (OSError, ValueError, IndexError, CacheError):
        pass
    return _find_plugin(compiler, question, path)


def _find_plugin(compiler: str, question: bytes, answer: Path) -> tuple[str, str]:
    """Find the plugin and remember it: format, question, plugin, include folder, the state of each file that it all
    depends on, and the format again, every part ended by a zero byte (read in runtime/native/launcher, too)."""
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


def added_flags(compiler: str, arguments: Sequence[str]) -> list[str]:
    """Return the flags to insert before `arguments`; empty if none are needed."""
    analysis = analyse(arguments, hipcc="hipcc" in Path(compiler).name)
    if not analysis.reads_hip or any(_loads_plugin(argument) for argument in arguments):
        return []
    path = shutil.which(compiler)
    if path is None:
        return []  # exec reports a better error
    if is_wrapper(path):
        return []  # it adds them itself
    if not analysis.generates_device_code:
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
        "no hipcc and no amdclang++ found"
        + (f" but {own[0]}, which is luthier-hipcc" if own else "")
        + ": set LUTHIER_HIPCC, or install ROCm (on Debian: apt install hipcc)"
    )


def _execute(name: str, command: Sequence[str]) -> int:
    """Add flags and become the compiler; returns only to report an error or after showing what would be done."""
    show = [argument for argument in command if argument.startswith("--luthier-")]
    plain = [argument for argument in command if not argument.startswith("--luthier-")] or [""]
    at = split_launchers(plain)
    compiler, arguments = plain[at], plain[at + 1 :]
    try:
        if show:
            return _show(name, show, plain[:at], compiler, arguments)
        flags = added_flags(compiler, arguments)
    except Exception as problem:
        from luthier.errors import LuthierError

        if not isinstance(problem, LuthierError):
            raise
        return _fail(f"{name}: error: {problem}", 1)
    full = [*plain[:at], compiler, *flags, *arguments]
    sys.stdout.flush()
    _leave_no_trace()
    try:
        os.execvp(full[0], full)
    except OSError as problem:
        return _fail(f"{name}: error: cannot run {full[0]}: {problem.strerror}", 127)


def _leave_no_trace() -> None:
    """Give the compiler what Python has changed for itself: signals that it ignores, and the locale C (PEP 538)."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        for variable in Path("/proc/self/environ").read_bytes().split(b"\0"):  # as it was when this began
            if variable.startswith(b"LC_CTYPE="):
                os.environb[b"LC_CTYPE"] = variable.partition(b"=")[2]
                return
        os.environ.pop("LC_CTYPE", None)


def _fail(text: str, status: int) -> int:
    from luthier.terminal import say_text

    say_text(text, file=sys.stderr)
    return status


def _show(name: str, show: Sequence[str], launchers: Sequence[str], compiler: str, arguments: Sequence[str]) -> int:
    from luthier.terminal import say_raw

    if show == ["--luthier-show"]:
        say_raw(shlex.join([*launchers, compiler, *added_flags(compiler, arguments), *arguments]))
    elif show == ["--luthier-showme:compile"]:
        path = shutil.which(compiler) or compiler
        say_raw(shlex.join(flags_for(*plugin_and_headers(path))))
    elif show == ["--luthier-showme:link"]:
        say_raw("")  # the embedded bitcode needs nothing of the linker
    elif show == ["--luthier-cmakedir"]:
        from luthier_build.__main__ import cmake_dir

        say_raw(cmake_dir())
    else:
        known = "--luthier-show, --luthier-showme:compile, --luthier-showme:link, --luthier-cmakedir"
        return _fail(f"{name}: error: {' '.join(show)}: choose one of {known}", 2)
    return 0


def hipcc() -> int:
    """Run ``luthier-hipcc``: used in the place of hipcc or amdclang++."""
    from luthier.errors import LuthierError

    # Luthier is for AMD GPUs; an nvcc on the path makes hipcc choose NVIDIA otherwise.
    os.environ.setdefault("HIP_PLATFORM", "amd")
    try:
        compiler = find_hipcc()
    except LuthierError as problem:
        return _fail(f"luthier-hipcc: error: {problem}", 1)
    os.environ[STARTED] = os.pathsep.join(filter(None, [os.environ.get(STARTED), compiler]))
    return _execute("luthier-hipcc", [compiler, *sys.argv[1:]])


def launcher() -> int:
    """Run ``luthier-cc COMPILER ARGUMENT…``: used before a compiler, or before ccache before a compiler."""
    command = sys.argv[1:]
    if not command:
        return _fail("usage: luthier-cc [--luthier-show] [ccache] COMPILER [ARGUMENT ...]", 2)
    return _execute("luthier-cc", command)


def main() -> int:
    """Run ``luthier-wrapper``: ``hipcc`` or ``cc``, then the arguments of that wrapper."""
    kind = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if kind not in ("hipcc", "cc"):
        return _fail("usage: luthier-wrapper (hipcc | cc) [ARGUMENT ...], which luthier-hipcc and luthier-cc start", 2)
    return hipcc() if kind == "hipcc" else launcher()
