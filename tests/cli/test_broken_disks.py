"""Files that cannot be read, as on a broken disk: each command says which, and why."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from commands import LUTHIER, PATIENCE
from run_folders import kernel, write_run

PRELOADED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int fails(int file) {
  char link[64], path[PATH_MAX] = "";
  const char *below = getenv("FAILING_BELOW");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (!below || readlink(link, path, sizeof path - 1) < 0 || strncmp(path, below, strlen(below)))
    return 0;
  errno = EIO;
  return 1;
}
ssize_t read(int file, void *to, size_t size) {
  return fails(file) ? -1 : ((ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(file, to, size);
}
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
  return fails(file) ? -1 : ((ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64"))(file, to, size, at);
}
void *mmap64(void *at, size_t size, int protection, int flags, int file, off64_t offset) {
  void *(*next)(void *, size_t, int, int, int, off64_t) = dlsym(RTLD_NEXT, "mmap64");
  return file >= 0 && fails(file) ? MAP_FAILED : next(at, size, protection, flags, file, offset);
}
"""
COMMANDS = {
    "objects": "objects {object}",
    "disasm": "disasm {object}",
    "extract": "extract {object} -o {out}/extracted",
    "lift": "lift {object}",
    "check": "check {object}",
    "patch": "patch {object} -t instr_count -o {out}/patched",
    "cost": "cost {object} -t instr_count",
    "verify": "verify {object} -t instr_count",
    "check-hooks": "check-hooks {object}",
    "diff": "diff {object} {object}",
    "report": "report {run}",
    "merge": "merge {run} {run} -o {out}/merged",
    "report of tables": "report {tables}",
    "merge of tables": "merge {tables} {tables} -o {out}/merged",
    "replay": "replay {capture}",
    "debug": "debug {capture}",
    "minimise": "minimise {capture} -o {out}/less",
    "export": "export {capture} --hip -o {out}/program",
    "diff captures": "diff {capture} {capture}",
}


@pytest.mark.rows
@pytest.mark.parametrize("name", COMMANDS)
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    source, library = tmp_path / "failing.c", tmp_path / "failing.so"
    source.write_text(PRELOADED)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl"], check=True)
    files = {"object": broken / "a.hsaco", "capture": broken / "a.lcap", "run": broken / "run", "out": tmp_path}
    files["object"].write_bytes(assembled(kernel_text(function("k", ["s_endpgm"]), "gfx90a"), "gfx90a").data)
    files["run"].mkdir()
    files["tables"] = write_run(broken.with_name("whole"), kernels=[kernel("k")])
    for file in (files["capture"], files["run"] / "summary.json"):
        file.write_bytes(b"{}")
    words = [str(word).format(**files) for word in COMMANDS[name].split()]
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAILING_BELOW": str(broken)}
    if "tables" in name:  # a summary that can be read
        broken = files["tables"] / "kernels.parquet"
        environment["FAILING_BELOW"] = str(broken)
    done = subprocess.run([LUTHIER, *words], capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert "Traceback" not in done.stderr, done
    output = done.stdout + done.stderr  # the messages of `replay` about captures are its result
    assert (done.returncode != 0, "Input/output error" in output, str(broken) in output) == (True,) * 3, done
