"""`luthier-hipcc` and `luthier-cc`: what they add and when, and every trap of putting a plugin into someone's build."""

from __future__ import annotations

import codecs
import contextlib
import functools
import itertools
import json
import os
import random
import resource
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.errors import BuildError
from luthier.objects import load_objects

from luthier_build.toolchain import Toolchain
from luthier_build.wrapper import GENERATES, NOTHING, READS, flags_for, plugin_and_headers
from luthier_build.wrapper_tables import HOST_ONLY, NO_CODE, ONLY_ASKING

MakeProject = Callable[[Mapping[str, str]], Path]

Wrap = Callable[..., subprocess.CompletedProcess[bytes]]
Analyse = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wrap(commands: Path) -> Wrap:
    """Run `luthier-cc`, or another of the commands, with environment variables."""

    def run(
        *command: str | Path, cwd: Path | None = None, name: str = "luthier-cc", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [commands / name, *command], cwd=cwd, env={**os.environ, **variables}, capture_output=True
        )

    return run


@pytest.fixture
def analyse(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Analyse:
    """What `luthier-cc` tells Python about a command: index of the compiler, verdicts for clang and hipcc."""
    folder = tmp_path_factory.mktemp("analyse")
    shutil.copy2(commands / "luthier-cc", folder)
    script(folder / "luthier-wrapper", '#!/bin/sh\necho "$2 $3 $4"\n')

    def run(*command: str) -> tuple[int, str, str]:
        done = subprocess.run([folder / "luthier-cc", "--luthier-show", *command], capture_output=True, check=True)
        index, clang, hipcc = done.stdout.decode().split()
        return int(index), clang, hipcc

    return run


@pytest.mark.parametrize(
    ("arguments", "clang", "hipcc"),
    [
        ("-c a.hip -o a.o", GENERATES, GENERATES),
        ("a.hip b.o -o a", GENERATES, GENERATES),
        ("-S a.hip", GENERATES, GENERATES),
        ("-x hip -c a.cpp", GENERATES, GENERATES),
        ("-xhip -c a.weird", GENERATES, GENERATES),
        ("-x hip -c -", GENERATES, GENERATES),
        ("-c a.cpp", NOTHING, GENERATES),
        ("-c a.cu", NOTHING, GENERATES),
        ("-x c++ -c a.hip", NOTHING, NOTHING),
        ("-x hip a.cpp -x none b.c", GENERATES, GENERATES),
        ("-c a.c", NOTHING, NOTHING),
        ("-c -- a.hip", GENERATES, GENERATES),
        ("-c -- -odd.hip", GENERATES, GENERATES),
        ("a.o b.o -o a", NOTHING, NOTHING),
        ("a.o -o a.hip", NOTHING, NOTHING),
        ("-E a.hip", READS, READS),
        ("-M a.hip", READS, READS),
        ("-MM a.hip", READS, READS),
        ("-MD -MF a.d -c a.hip", GENERATES, GENERATES),
        ("-MT -E -c a.hip", GENERATES, GENERATES),
        ("-Xclang -E -c a.hip", GENERATES, GENERATES),
        ("-fsyntax-only a.hip", READS, READS),
        ("--cuda-host-only -c a.hip", READS, READS),
        ("--cuda-host-only --cuda-device-only -c a.hip", GENERATES, GENERATES),
        ("--offload-device-only -c a.hip --offload-host-only", READS, READS),
        ("--language=hip -c a.cpp", GENERATES, GENERATES),
        ("--language hip -c a.cpp", GENERATES, GENERATES),
        ("--language=c++ -c a.hip", NOTHING, NOTHING),
        ("-c a.hipi", GENERATES, GENERATES),
        ("-cc1 -x hip a.hip", NOTHING, NOTHING),
        ("-c a.hip -cc1", GENERATES, GENERATES),
        ("--cuda-device-only -c a.hip", GENERATES, GENERATES),
        ("-### -c a.hip", READS, READS),
        ("--version", NOTHING, NOTHING),
        ("-print-search-dirs a.hip", NOTHING, NOTHING),
        ("-dumpmachine a.hip", NOTHING, NOTHING),
        ("-print-rocm-search-dirs -c a.hip", GENERATES, GENERATES),
        ("-print-ivar-layout -c a.hip", GENERATES, GENERATES),
        ("-include a.hip -c a.c", NOTHING, NOTHING),
        ("-Xarch_device a.hip -c a.c", NOTHING, NOTHING),
        ("-v", NOTHING, NOTHING),
        ("", NOTHING, NOTHING),
    ],
)
def test_what_a_command_does(analyse: Analyse, arguments: str, clang: str, hipcc: str) -> None:
    assert analyse("cc", *shlex.split(arguments)) == (0, clang, hipcc)


def test_response_files_are_looked_into(analyse: Analyse, tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("-c 'with blank.hip'")
    (tmp_path / "outer").write_text(f"-o a.o @{tmp_path}/inner")
    assert analyse("cc", f"@{tmp_path}/outer")[1] == GENERATES
    (tmp_path / "inner").write_text("-E 'with blank.hip'")
    assert analyse("cc", f"@{tmp_path}/outer")[1] == READS
    assert analyse("cc", "@missing", "-c", "a.hip")[1] == GENERATES
    (tmp_path / "endless").write_text(f"@{tmp_path}/endless")
    assert analyse("cc", f"@{tmp_path}/endless")[1] == NOTHING
    for number in range(40):
        (tmp_path / f"deep{number}").write_text(f"@{tmp_path}/deep{number + 1}")
    (tmp_path / "deep40").write_text("a.hip")
    assert analyse("cc", f"@{tmp_path}/deep0", f"@{tmp_path}/deep39")[1] == GENERATES
    (tmp_path / "deep40").write_text("-cc1 a.hip")
    assert analyse("cc", f"@{tmp_path}/deep0")[1] == NOTHING


def test_response_files_are_taken_apart_as_clang_does(analyse: Analyse, toolchain: Toolchain, tmp_path: Path) -> None:
    """clang names each word, since there are no such files; the verdict says whether the words have the suffix .hip."""
    chance = random.Random(1)
    pieces = ["a", "b", "é", " ", "'", '"', "\\", "\t", "\r", "\n", "\v", "$", "#", "\\'", '\\"', ".hip", ".hip"]
    texts = ["".join(chance.choices(pieces, k=chance.randrange(1, 16))) for _ in range(200)]
    texts += ["'a\\'b\\'' a.hip", "open 'to the end.hip", "\\", "a''b.h\\ip", "'.hip'", "x'.hip '"]
    marks = (
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
    )
    arguments = []
    for number, text in enumerate(texts):
        encoding, mark = marks[number % len(marks)]
        (tmp_path / f"{number}").write_bytes(mark + text.encode(encoding))
        arguments += [f"@{number}", f"end of {number}"]
    done = subprocess.run([toolchain.clang, "-c", *arguments], cwd=tmp_path, capture_output=True)
    names = done.stderr.decode().split("no such file or directory: '")[1:]
    words = iter([text.rpartition("'")[0] for text in names if not text.startswith("'\n")])
    verdicts = set()
    with contextlib.chdir(tmp_path):
        for number in range(len(texts)):
            inner = list(itertools.takewhile(lambda word: word != f"end of {number}", words))  # noqa: B023
            is_hip = any(os.path.splitext(word)[1] == ".hip" for word in inner if not word.startswith("-"))
            assert analyse("cc", f"@{number}")[1] == (GENERATES if is_hip else NOTHING), texts[number]
            verdicts.add(is_hip)
    assert verdicts == {True, False}


@pytest.mark.parametrize("kind", ["pipe", "null"])
def test_a_response_file_that_can_be_read_once_is_an_error(commands: Path, tmp_path: Path, kind: str) -> None:
    """The compiler would get an empty one."""
    fake = script(tmp_path / "cc", "#!/bin/sh\necho started\n")
    read, write = os.pipe()
    os.write(write, b"-DX=1")
    os.close(write)
    name = f"@/dev/fd/{read}" if kind == "pipe" else "@/dev/null"
    (tmp_path / "outer").write_text(name)
    for arguments in ([name], [f"@{tmp_path}/outer"]):
        command = [commands / "luthier-cc", fake, *arguments]
        done = subprocess.run(command, pass_fds=[read], capture_output=True)
        assert done.returncode == 1
        assert f"luthier-cc: error: {name} is not a regular file".encode() in done.stderr
        assert done.stdout == b""
    os.close(read)


@pytest.mark.parametrize(
    "locale", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}]
)
def test_the_compiler_inherits_nothing_of_pythons(commands: Path, tmp_path: Path, locale: Mapping[str, str]) -> None:
    """Signals that Python ignores and the locale that it chooses would reach everything that a compiler starts."""
    fake = script(tmp_path / "cc", "#!/bin/sh\ngrep SigIgn /proc/$$/status\nenv | grep '^LC_' | sort\n")
    rest = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    python = [commands / "luthier-wrapper", "cc", "0", NOTHING, NOTHING]
    outputs = [
        subprocess.run(command, env={**rest, "LANG": "C", **locale}, capture_output=True, check=True).stdout
        for command in ([fake], [*python, fake])
    ]
    assert outputs[0] == outputs[1]


def test_launchers_before_the_compiler(analyse: Analyse) -> None:
    assert analyse("clang++", "-c")[0] == 0
    assert analyse("ccache", "clang++", "-c", "a.hip") == (1, GENERATES, GENERATES)
    assert analyse("/usr/bin/ccache", "debug=true", "/usr/bin/clang++", "-c")[0] == 2
    assert analyse("ccache", "distcc", "clang++")[0] == 2
    assert analyse("ccache")[0] == 0
    assert analyse() == (0, NOTHING, NOTHING)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_arguments_reach_the_compiler_untouched(wrap: Wrap, tmp_path: Path) -> None:
    fake = script(tmp_path / "cc", '#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done\n')
    odd = ['-DX="a b"', "$HOME", "`id`", "a;b", "", "back\\slash", "new\nline", "*.c", "-DÄ=1", "a'b", "@missing", "-c"]
    done = wrap(fake, *odd)
    assert done.stdout.decode().split("\0")[:-1] == odd
    response = tmp_path / "response file"
    response.write_text("-DONE '-DTWO=a b'")
    assert wrap(fake, f"@{response}").stdout.decode() == f"@{response}\0"


def test_exit_codes_and_signals_are_the_compilers(wrap: Wrap, tmp_path: Path) -> None:
    assert wrap(script(tmp_path / "c1", "#!/bin/sh\nexit 37\n")).returncode == 37
    assert wrap(script(tmp_path / "c2", "#!/bin/sh\nkill -SEGV $$\n")).returncode == -signal.SIGSEGV
    missing = wrap(tmp_path / "none", "-c", "a.hip")
    assert missing.returncode == 127
    assert b"cannot run" in missing.stderr
    assert b"Traceback" not in missing.stderr
    assert wrap().returncode == 2
    assert wrap("--luthier-nonsense", "cc").returncode == 2


def device_flags(toolchain: Toolchain, target: str = "gfx942") -> list[str]:
    """The compiler with flags for host and device code: without the library that is added to every cc1."""
    flags = toolchain.device_flags(target)
    if "-mlink-builtin-bitcode" in flags:
        at = flags.index("-mlink-builtin-bitcode")
        del flags[at - 1 : at + 3]
    return [str(toolchain.clang), *flags]


def embedded(path: Path) -> dict[str, int]:
    return {str(o.target): len(o.section_data(".llvmbc") or b"") for o in load_objects(path)}


@pytest.fixture
def source(hook: str, make_project: MakeProject) -> Path:
    return make_project({"a.hip": hook + "__global__ void kernel(int *p) { *p = 1; }\n"}) / "a.hip"


def test_device_code_gets_its_bitcode_and_host_code_nothing(wrap: Wrap, source: Path, toolchain: Toolchain) -> None:
    folder = source.parent
    compiler = device_flags(toolchain)
    done = wrap(*compiler, "-c", source, "-o", folder / "a.o", "-MD", "-MF", folder / "a.d")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    assert embedded(folder / "a.o")["gfx942"] > 1000
    sections = subprocess.run(
        ["llvm-readelf-22", "-S", folder / "a.o"], capture_output=True, text=True, check=True
    ).stdout
    assert ".llvmbc" not in sections  # the host's part
    # A new plugin must make make(1) build again.
    plugin, _ = plugin_and_headers(compiler[0])
    assert plugin in (folder / "a.d").read_text().split()

    for name in ("plain", "wrapped"):
        (folder / "host.cpp").write_text("int f(int a) { return a; }\n")
        command = [toolchain.clang, "-c", "host.cpp", "-o", f"{name}.o", "-Wall", "-Werror"]
        if name == "plain":
            subprocess.run(command, cwd=folder, check=True)
        else:
            assert wrap(*command, cwd=folder).returncode == 0
    assert (folder / "plain.o").read_bytes() == (folder / "wrapped.o").read_bytes()


@pytest.mark.rows
@pytest.mark.parametrize("option", [*ONLY_ASKING, *NO_CODE, *HOST_ONLY])
def test_options_for_which_there_is_no_plugin_make_no_device_code(
    tmp_path: Path, toolchain: Toolchain, option: str
) -> None:
    """The expected value comes from clang itself."""
    (tmp_path / "a.hip").write_text("__attribute__((global)) void k(int *p) { *p = 1; }\n")
    flags = ["--offload-arch=gfx90a", "-nogpulib", "-nogpuinc", "--no-gpu-bundle-output", "-S", "a.hip", "-o", "a.s"]
    subprocess.run([toolchain.clang, *flags, option], cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL)
    assert not (tmp_path / "a.s").exists() or "s_endpgm" not in (tmp_path / "a.s").read_text(errors="replace")


@pytest.mark.rows(1)
@pytest.mark.parametrize("flags", [["-save-temps"], ["-foffload-lto"], ["-O0"], ["-g"], ["--cuda-device-only"]])
def test_flags_that_change_how_device_code_is_made(
    wrap: Wrap, source: Path, toolchain: Toolchain, flags: list[str]
) -> None:
    output = source.parent / "out.o"
    done = wrap(*device_flags(toolchain), *flags, "-c", source, "-o", output, cwd=source.parent)
    assert done.returncode == 0, done.stderr.decode()
    assert embedded(output)["gfx942"] > 1000


def test_rdc_is_refused_with_the_reason(wrap: Wrap, source: Path, toolchain: Toolchain) -> None:
    done = wrap(*device_flags(toolchain), "-fgpu-rdc", "-c", source, "-o", source.parent / "a.o")
    assert done.returncode != 0
    assert b"cannot be compiled with -fgpu-rdc" in done.stderr


@pytest.mark.thorough
def test_probes_work_without_a_plugin_and_code_generation_says_why_not(
    wrap: Wrap, source: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    nowhere = {"LUTHIER_CACHE_DIR": str(tmp_path / "file")}
    compiler = device_flags(toolchain)  # found with a cache that works
    for probe in (["-E"], ["-M"], ["-fsyntax-only"], ["--version"], ["-###", "-c"]):
        done = wrap(*compiler, *probe, source, **nowhere)
        assert done.returncode == 0, done.stderr.decode()
    output = source.parent / "a.o"
    done = wrap(*compiler, "-c", source, "-o", output, **nowhere)
    assert done.returncode == 1
    assert b"luthier-cc: error: " in done.stderr
    assert b"set LUTHIER_CACHE_DIR" in done.stderr
    assert not output.exists()


def test_a_compiler_that_is_not_clang(wrap: Wrap, source: Path) -> None:
    done = wrap("g++", "-x", "hip", "-c", source)
    assert done.returncode == 1
    assert b"luthier-cc: error" in done.stderr
    assert wrap("g++", "-fsyntax-only", "-x", "c++", "/dev/null").returncode == 0


@pytest.mark.thorough
def test_compiler_caches_see_a_new_plugin(wrap: Wrap, source: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    """ccache does not hash -fpass-plugin: without -fplugin it would give back what the earlier plugin made."""
    cache = {"LUTHIER_CACHE_DIR": str(tmp_path / "luthier"), "CCACHE_DIR": str(tmp_path / "ccache"), "CCACHE_DEBUG": ""}
    cache.pop("CCACHE_DEBUG")
    plugin, include = plugin_and_headers(str(toolchain.clang))
    own = tmp_path / "plugin.so"
    own.write_bytes(Path(plugin).read_bytes())
    command = ["ccache", *device_flags(toolchain)]
    compile_ = ["-c", source, "-o", source.parent / "a.o"]

    def misses() -> int:
        done = subprocess.run(
            [*command[:2], *flags_for(str(own), include), *command[2:], *compile_],
            env={**os.environ, **cache},
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()
        shown = subprocess.run(
            ["ccache", "--print-stats"], env={**os.environ, **cache}, capture_output=True, text=True, check=True
        ).stdout
        return int(dict(line.split("\t") for line in shown.splitlines())["cache_miss"])

    assert misses() == 1
    assert misses() == 1  # a hit
    own.write_bytes(own.read_bytes() + b"\0")
    assert misses() == 2
    assert embedded(source.parent / "a.o")["gfx942"] > 1000

    # Through the wrapper, before ccache.
    for expected in (3, 3):
        done = wrap(*command, *compile_, CCACHE_DIR=cache["CCACHE_DIR"])
        assert done.returncode == 0, done.stderr.decode()
        assert misses() == expected


@pytest.mark.thorough
def test_sccache_caches_no_hooks(wrap: Wrap, source: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    """sccache would return the output of an earlier plugin or reject -fplugin, so the flags prevent its use."""
    if not shutil.which("sccache"):
        pytest.skip("sccache is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"SCCACHE_DIR": str(tmp_path / "cache"), "SCCACHE_SERVER_PORT": str(port), "SCCACHE_IDLE_TIMEOUT": "60"}
    server = functools.partial(
        subprocess.run, env={**os.environ, **settings}, capture_output=True, text=True, check=True
    )
    server(["sccache", "--start-server"])
    try:
        for name in ("a.o", "b.o"):
            done = wrap("sccache", *device_flags(toolchain), "-c", source, "-o", source.parent / name, **settings)
            assert done.returncode == 0, done.stderr.decode()
            assert embedded(source.parent / name)["gfx942"] > 1000
        stats = server(["sccache", "--show-stats", "--stats-format=json"]).stdout
    finally:
        server(["sccache", "--stop-server"])
    counted = json.loads(stats)["stats"]
    assert (counted["compile_requests"], counted["requests_executed"]) == (2, 0)
    assert counted["requests_not_cacheable"] == 2


def test_options_for_llvm_do_not_leak_to_the_linker() -> None:
    """A bare -mllvm reaches the device linker, which lacks the plugin's options."""
    flags = flags_for("/p.so", "/i")
    assert all(flags[place - 1] == "-Xclang" for place, flag in enumerate(flags) if flag == "-mllvm")


def test_the_remembered_plugin_is_found_anew_when_luthier_or_the_compiler_changes(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = plugin_and_headers(str(toolchain.clang))
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "c"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c/plugins").symlink_to(Path(real[0]).parent)
    assert plugin_and_headers(str(toolchain.clang))[1] == real[1]
    (answer,) = (tmp_path / "c/wrapper").glob("*.answer")
    right = answer.read_bytes()
    fields = right.split(b"\0")
    assert str(toolchain.clang.resolve()).encode() in fields
    for damaged in (
        right.replace(b"luthier-wrapper-1", b"luthier-wrapper-0"),
        right.replace(b"\0" + os.fsencode(toolchain.clang.resolve()) + b"\0", b"\0/gone\0"),
        right.replace(fields[6] + b"\0", b"9\0"),  # another time of change
        right[: len(right) // 2],
        *(right[: at + 1] for at, byte in enumerate(right[:-1]) if not byte),
        b"",
    ):
        answer.write_bytes(damaged)
        assert plugin_and_headers(str(toolchain.clang))[1] == real[1]
        assert answer.read_bytes() == right


def test_links_that_choose_the_compiler_have_each_their_plugin(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ccache's, which are all one program and act by their names."""
    clang = script(tmp_path / "one", f'#!/bin/sh\ncase $0 in */clang++) exec {toolchain.clang} "$@";; esac\nexit 9\n')
    for name in ("clang++", "other++"):
        (tmp_path / name).symlink_to(clang)
    assert plugin_and_headers(str(tmp_path / "clang++"))[0].endswith(".so")
    with pytest.raises(BuildError, match="failed with exit code 9"):
        plugin_and_headers(str(tmp_path / "other++"))


def test_show_modes(wrap: Wrap, source: Path, toolchain: Toolchain) -> None:
    compiler = str(toolchain.clang)
    plugin, include = plugin_and_headers(compiler)
    shown = wrap("--luthier-show", "ccache", compiler, "-c", source, "-DX=a b").stdout.decode()
    assert shlex.split(shown) == ["ccache", compiler, *flags_for(plugin, include), "-c", str(source), "-DX=a b"]
    assert wrap("--luthier-show", compiler, "a.o").stdout.decode() == f"{compiler} a.o\n"
    assert shlex.split(wrap("--luthier-showme:compile", compiler).stdout.decode()) == flags_for(plugin, include)
    assert wrap("--luthier-showme:link", compiler).stdout == b"\n"


def test_hipcc(wrap: Wrap, source: Path, clang15: Toolchain) -> None:
    """Debian's hipcc, a Perl script around clang 15."""
    folder = source.parent
    done = wrap(
        "--offload-arch=gfx90a", "--offload-arch=gfx1030", "-c", source, "-o", folder / "a.o", name="luthier-hipcc"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert embedded(folder / "a.o").keys() == {"gfx90a", "gfx1030"}
    assert min(embedded(folder / "a.o").values()) > 1000
    # hipcc takes C++ sources for HIP, and links.
    program = folder / "main.cpp"
    program.write_text('#include "a.hip"\nint main() { return 0; }\n')
    done = wrap("--offload-arch=gfx90a", program, "-o", folder / "main", name="luthier-hipcc")
    assert done.returncode == 0, done.stderr.decode()
    assert embedded(folder / "main")["gfx90a"] > 1000


def test_hipcc_with_response_files_does_what_hipcc_does(wrap: Wrap, source: Path, clang15: Toolchain) -> None:
    """hipcc 5.2 reads `-c` inside a response file as a link, and fails; the wrapper neither hides nor changes that."""
    folder = source.parent
    response = folder / "args"
    response.write_text(f"--offload-arch=gfx90a {source} -o {folder}/r.o")
    plain = subprocess.run(
        ["hipcc", f"-I{plugin_and_headers(str(clang15.clang))[1]}", "-c", f"@{response}"],
        env={**os.environ, "HIP_PLATFORM": "amd"},
        capture_output=True,
    )
    wrapped = wrap("-c", f"@{response}", name="luthier-hipcc")
    assert wrapped.returncode == plain.returncode
    if plain.returncode == 0:
        assert embedded(folder / "r.o")["gfx90a"] > 1000
    # clang itself reads them well.
    response.write_text(shlex.join(["-c", str(source), "-o", str(folder / "c.o")]))
    done = wrap(*device_flags(clang15, "gfx90a"), f"@{response}")
    assert done.returncode == 0, done.stderr.decode()
    assert embedded(folder / "c.o")["gfx90a"] > 1000


def test_hipcc_is_found_and_never_the_wrapper_itself(wrap: Wrap, commands: Path, tmp_path: Path) -> None:
    fake = script(tmp_path / "hipcc", '#!/bin/sh\necho "$HIP_PLATFORM" "$@"\n')
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key not in ("HIP_PLATFORM", "LUTHIER_HIPCC")}
    done = subprocess.run(
        [commands / "luthier-hipcc", "--version"], env={**environment, "PATH": path, "HIPCC": "luthier-hipcc"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "amd --version\n"
    assert wrap("--version", name="luthier-hipcc", LUTHIER_HIPCC=str(fake), HIP_PLATFORM="").stdout == b" --version\n"
    nothing = {"PATH": str(tmp_path / "none"), "ROCM_PATH": str(tmp_path / "none")}
    done_ = wrap("--version", name="luthier-hipcc", **nothing)
    assert done_.returncode == 1
    assert b"no hipcc or amdclang++ found" in done_.stderr


def test_start_up_costs_little(wrap: Wrap, source: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    """Less than 120 ms of CPU time beyond the compiler, plugin lookup included; measured against a compiler that does
    nothing."""
    fake = script(tmp_path / "hipcc", f'#!/bin/sh\ncase "$*" in *-###*) exec {toolchain.clang} "$@";; esac\n')
    wrap("-c", source, name="luthier-hipcc", LUTHIER_HIPCC=str(fake))  # remembers the plugin

    def best(run: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    alone = best(lambda: subprocess.run([fake, "-c", source], check=True))
    wrapped = best(lambda: wrap("-c", source, name="luthier-hipcc", LUTHIER_HIPCC=str(fake)))
    assert wrapped - alone < 0.12
