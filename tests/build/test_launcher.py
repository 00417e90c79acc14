"""The native `luthier-cc` and `luthier-hipcc`: what they add, what they leave to Python, and never in a circle."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from luthier_build.plugin import include_dir, plugin_for
from luthier_build.toolchain import Toolchain
from luthier_build.wrapper import flags_for
from luthier_build.wrapper_tables import (
    HIP_SUFFIXES,
    HIPCC_SUFFIXES,
    HOST_ONLY,
    LAUNCHERS,
    NO_CODE,
    NOT_HOST_ONLY,
    ONLY_ASKING,
    VARIABLES,
    WITH_VALUE,
)

ODD = ['-DX="a b"', "$HOME", "`id`", "a;b", "", "back\\slash", "new\nline", "*.c", "-DÄ=1", "a'b", "@", "-c"]
ECHO = '#!/bin/sh\ncase "$*" in *-nogpuinc*) exec {clang} "$@";; esac\nfor a in "$@"; do printf "%s\\0" "$a"; done\n'


class Place:
    """The commands in a separate folder, with compilers that print their arguments."""

    def __init__(self, folder: Path, commands: Path, clang: Path) -> None:
        self.commands, self.bin = folder / "commands ä", folder / "bin with blank"
        shutil.copytree(commands, self.commands)
        self.bin.mkdir()
        for name in ("clang++", "hipcc"):
            script(self.bin / name, ECHO.format(clang=clang))
        variables = ("LUTHIER_HIPCC", "LUTHIER_HIPCC_STARTED", "HIP_PLATFORM")
        self.environment = {
            **{key: value for key, value in os.environ.items() if key not in variables},
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
        program = self.commands / command[0]
        environment = {**self.environment, **variables}
        return subprocess.run([program, *command[1:]], env=environment, capture_output=True, timeout=600)

    def without_python(self) -> None:
        """Replace the Python part by a script that only reports its call."""
        script(
            self.commands / "luthier-wrapper", '#!/bin/sh\nprintf "PYTHON\\0"; for a; do printf "%s\\0" "$a"; done\n'
        )

    def words(self, *command: str | Path, **variables: str) -> list[str]:
        done = self.run(*command, **variables)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().split("\0")[:-1]


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def left_to_python(kind: str, *arguments: str) -> list[str]:
    """What `Place.without_python` makes `luthier-wrapper` print for a command that is analysed."""
    verdict = "generates" if "a.hip" in arguments else "nothing"
    return ["PYTHON", kind, "0", verdict, verdict, *arguments]


@pytest.fixture
def place(tmp_path: Path, commands: Path, toolchain: Toolchain) -> Place:
    return Place(tmp_path, commands, toolchain.clang)


def test_flags_are_added_for_what_a_command_does(place: Place) -> None:
    added = {}
    for wrapper, compiler in (("luthier-cc", ["clang++"]), ("luthier-cc", ["hipcc"]), ("luthier-hipcc", [])):
        first = place.words(wrapper, *compiler, "-c", "a.hip")  # Python's, which remembers
        added[wrapper, *compiler] = first[: first.index("-c")]
        plugin, include = first[1].partition("=")[2], first[5][2:]
        assert first == [*flags_for(plugin, include), "-c", "a.hip"]
    place.without_python()
    generates, reads, nothing = slice(None), slice(-1, None), slice(0)
    commands = {
        ("-c", "a.hip"): generates,
        (): nothing,
        **{(option, "a.hip"): nothing for option in (*ONLY_ASKING, *WITH_VALUE)},
        **{(option, "a.hip"): reads for option in (*NO_CODE, *HOST_ONLY)},
        **{(option, "a.hip"): generates for option in NOT_HOST_ONLY},
    }
    for (wrapper, *compiler), flags in added.items():
        for arguments, which in commands.items():
            assert place.words(wrapper, *compiler, *arguments) == [*flags[which], *arguments], shlex.join(arguments)
        for suffix in HIPCC_SUFFIXES:
            which = generates if suffix in HIP_SUFFIXES or compiler != ["clang++"] else nothing
            assert place.words(wrapper, *compiler, f"a{suffix}") == [*flags[which], f"a{suffix}"]
        response = place.commands / "response"
        response.write_text("-c 'with blank.hip'")
        assert place.words(wrapper, *compiler, f"@{response}") == [*flags, f"@{response}"]


def test_arguments_exit_codes_and_signals_are_passed_on(place: Place, tmp_path: Path) -> None:
    flags = place.words("luthier-cc", "clang++", "-c", "a.hip")[:-2]
    place.without_python()
    assert place.words("luthier-cc", "clang++", *ODD) == ODD
    assert place.words("luthier-cc", "clang++", "a.hip", *ODD) == [*flags, "a.hip", *ODD]
    assert place.run("luthier-cc", script(tmp_path / "c1", "#!/bin/sh\nexit 37\n")).returncode == 37
    assert place.run("luthier-cc", script(tmp_path / "c2", "#!/bin/sh\nkill -9 $$\n")).returncode == -signal.SIGKILL
    missing = place.run("luthier-cc", "no-such-compiler", "-c", "a.c")
    assert missing.returncode == 127
    assert missing.stderr == b"luthier-cc: error: cannot run no-such-compiler: No such file or directory\n"
    # Before a compiler cache, with its own settings.
    for name in LAUNCHERS:
        (place.bin / name).symlink_to(place.bin / "clang++")
        passed = place.words("luthier-cc", name, "a=b", "clang++", "a.hip", "-c")
        assert passed == ["a=b", "clang++", *flags, "a.hip", "-c"]


def test_what_needs_a_decision_is_pythons(place: Place, tmp_path: Path) -> None:
    plugin = place.words("luthier-cc", "clang++", "-c", "a.hip")[1].partition("=")[2]
    place.words("luthier-hipcc", "-c", "a.hip")
    place.without_python()
    for arguments in (
        ["--luthier-show", "clang++", "a.hip"],
        ["clang++", f"-fpass-plugin={plugin}", "a.hip"],
        ["no-such-clang", "a.hip"],
        [],
    ):
        assert place.words("luthier-cc", *arguments) == left_to_python("cc", *arguments)
    hip = ["clang++", "-c", "a.hip"]
    changes = dict.fromkeys((*VARIABLES, "LUTHIER_CACHE_DIR"), "/x") | {"PATH": f"{place.environment['PATH']}:/x"}
    for changed in ({name: value} for name, value in changes.items()):
        assert place.words("luthier-cc", *hip, **changed) == left_to_python("cc", *hip)
    assert place.words("luthier-hipcc", "-c", LUTHIER_HIPCC_STARTED="/x") == left_to_python("hipcc", "-c")
    assert place.words("luthier-hipcc", "a.hip", LUTHIER_HIPCC="/x") == left_to_python("hipcc", "a.hip")
    assert place.words("luthier-cc", *hip)[0] == "-Xarch_device"
    cache = Path(place.environment.get("LUTHIER_CACHE_DIR") or Path.home() / ".cache/luthier")
    for caches in ({"LUTHIER_CACHE_DIR": os.path.relpath(cache)}, {"XDG_CACHE_HOME": "relative"}):
        if "LUTHIER_CACHE_DIR" in caches or "LUTHIER_CACHE_DIR" not in place.environment:
            assert place.words("luthier-cc", *hip, **caches)[0] == "-Xarch_device"
    os.utime(place.bin / "clang++")  # another compiler
    assert place.words("luthier-cc", *hip) == left_to_python("cc", *hip)


@pytest.mark.thorough
def test_a_plugin_that_was_damaged_is_built_again(place: Place, toolchain: Toolchain, tmp_path: Path) -> None:
    built = plugin_for(toolchain)
    plugin = tmp_path / "cache/plugins" / built.name
    plugin.parent.mkdir(parents=True)
    for suffix in ("", ".record"):
        shutil.copy2(f"{built}{suffix}", f"{plugin}{suffix}")
    own = {"LUTHIER_CACHE_DIR": str(tmp_path / "cache")}
    wanted = flags_for(str(plugin), str(include_dir()))
    assert place.words("luthier-cc", "clang++", "a.hip", **own) == [*wanted, "a.hip"]
    right = plugin.read_bytes()
    assert len(right) == len(built.read_bytes())
    plugin.write_bytes(right[: len(right) // 2])
    # Two in parallel: one builds, the other waits for it.
    command = [place.commands / "luthier-cc", "clang++", "a.hip"]
    both = [subprocess.Popen(command, env={**place.environment, **own}, stdout=subprocess.PIPE) for _ in range(2)]
    for process in both:
        output, _ = process.communicate(timeout=600)
        assert output.decode().split("\0")[:-1] == [*wanted, "a.hip"]
    assert len(plugin.read_bytes()) == len(right)
    left = {path.name for path in plugin.parent.iterdir()}
    assert left == {plugin.name, f"{plugin.name}.record", plugin.with_suffix(".lock").name}


def test_what_others_could_have_written_is_not_taken(place: Place, toolchain: Toolchain, tmp_path: Path) -> None:
    """An answer names a library that the compiler loads: whose it is is asked of all on the way to both."""
    built = plugin_for(toolchain)
    cache = tmp_path / "cache"
    plugin = cache / "plugins" / built.name
    plugin.parent.mkdir(parents=True)
    for suffix in ("", ".record"):
        shutil.copy2(f"{built}{suffix}", f"{plugin}{suffix}")
    own = {"LUTHIER_CACHE_DIR": str(cache)}
    hip = ["clang++", "-c", "a.hip"]
    flags = flags_for(str(plugin), str(include_dir()))
    assert place.words("luthier-cc", *hip, **own) == [*flags, *hip[1:]]
    (answer,) = (cache / "wrapper").glob("*.answer")
    evil = tmp_path / "evil.so"
    shutil.copy2(plugin, evil)
    planted = answer.read_bytes().replace(os.fsencode(plugin), os.fsencode(evil))
    answer.write_bytes(planted)
    answer.chmod(0o666)
    assert place.words("luthier-cc", *hip, **own) == [*flags, *hip[1:]]  # from Python, which makes it again
    assert answer.read_bytes() != planted
    place.without_python()
    (tmp_path / "link").symlink_to(cache)
    for folder in (cache, tmp_path / "link"):
        assert place.words("luthier-cc", *hip, LUTHIER_CACHE_DIR=str(folder)) == [*flags, *hip[1:]]
    for path in (answer, answer.parent, cache, plugin, plugin.parent):
        mode, owner = path.stat().st_mode & 0o777, path.stat().st_uid
        for wrong in (mode | 0o020, mode | 0o002):
            path.chmod(wrong)
            assert place.words("luthier-cc", *hip, **own) == left_to_python("cc", *hip), path
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, 54321, -1)
            assert place.words("luthier-cc", *hip, **own) == left_to_python("cc", *hip), path
            os.chown(path, owner, -1)
    assert place.words("luthier-cc", *hip, **own) == [*flags, *hip[1:]]


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere")
def test_a_read_only_cache_that_has_all_is_enough(place: Place, toolchain: Toolchain, tmp_path: Path) -> None:
    """As one that an administrator filled for everybody."""
    built = plugin_for(toolchain)
    cache = tmp_path / "cache"
    (cache / "plugins").mkdir(parents=True)
    for suffix in ("", ".record"):
        shutil.copy2(f"{built}{suffix}", f"{cache / 'plugins' / built.name}{suffix}")
    (cache / "wrapper").mkdir()
    for folder in (cache / "plugins", cache / "wrapper", cache):
        folder.chmod(0o555)
    dropped = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    environment = {**place.environment, "LUTHIER_CACHE_DIR": str(cache)}

    def compile_() -> subprocess.CompletedProcess[bytes]:
        command = [*dropped, place.commands / "luthier-cc", "clang++", "a.hip"]
        return subprocess.run(command, env=environment, capture_output=True, timeout=600)

    plugin = cache / "plugins" / built.name
    assert f"-fplugin={plugin}\0".encode() in compile_().stdout
    assert os.listdir(cache / "wrapper") == []
    (cache / "plugins").chmod(0o755)
    plugin.write_bytes(b"")
    (cache / "plugins").chmod(0o555)
    failed = compile_()
    assert failed.returncode == 1
    assert b"which is not writable; set LUTHIER_CACHE_DIR to a writable folder" in failed.stderr


@pytest.mark.rows(1)
@pytest.mark.parametrize("how", ["link", "copy", "link to Python's", "copy of Python's", "script"])
def test_under_the_name_hipcc_it_finds_the_real_one(place: Place, tmp_path: Path, how: str) -> None:
    """The first hipcc on the path is luthier-hipcc itself; luthier-cc before it adds nothing twice."""
    front = tmp_path / "front"
    front.mkdir()
    real = place.commands / ("luthier-wrapper" if "Python" in how else "luthier-hipcc")
    if how == "script":
        script(front / "hipcc", f'#!/bin/sh\nexec "{real}" "$@"\n')
    elif "Python" in how:  # as pip made it before luthier-hipcc was a program
        text = real.read_text().replace("import main", "import hipcc as main")
        script(tmp_path / "luthier-old", text)
        (front / "hipcc").symlink_to(tmp_path / "luthier-old") if "link" in how else script(front / "hipcc", text)
    else:
        (front / "hipcc").symlink_to(real) if how == "link" else shutil.copy2(real, front / "hipcc")
    path = {"PATH": f"{front}:{place.commands}:{place.environment['PATH']}"}
    for _ in range(2):
        for command in (["luthier-hipcc"], ["luthier-cc", "hipcc"], ["luthier-cc", front / "hipcc"]):
            words = place.words(*command, "-c", "a.hip", **path)
            assert words[-2:] == ["-c", "a.hip"]
            assert sum(word.startswith("-fpass-plugin=") for word in words) == 1
            assert place.words(*command, "-c", "a.o", **path) == ["-c", "a.o"]
    (place.bin / "hipcc").unlink()
    path["PATH"] = (
        f"{front}:{place.commands}:/nowhere:{Path(shutil.which('sh') or '').parent if how == 'script' else ''}"
    )
    if how == "script":
        return  # whatever other hipcc the machine has
    alone = place.run("luthier-hipcc", "-c", "a.hip", ROCM_PATH="/nowhere", **path)
    assert alone.returncode == 1
    assert b"which is luthier-hipcc: set LUTHIER_HIPCC" in alone.stderr
    named = place.run("luthier-hipcc", "-c", "a.hip", LUTHIER_HIPCC=str(front / "hipcc"))
    assert named.returncode == 1
    assert b"which starts luthier-hipcc: name the real hipcc" in named.stderr
