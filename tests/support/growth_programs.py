"""Programs of any size whose analysis must take time linear in their size: code with calls, loops and branches.

Loads are outstanding everywhere unless said otherwise: nothing waits, so as many as the counters hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from assembly import DIALECTS, assembled, function, kernel_text
from luthier.objects import CodeObject

TARGET = "gfx942"


def _call(name: str) -> list[str]:
    """Return a call as compilers write it."""
    address = "s_getpc_b64 s[16:17]\n s_add_u32 s16, s16, {0}@rel32@lo+4\n s_addc_u32 s17, s17, {0}@rel32@hi+12"
    return [address.format(name), "s_swappc_b64 s[30:31], s[16:17]"]


def _function(number: int, lines: Iterable[str]) -> str:
    """Return a function that only this object calls."""
    return f".hidden f{number}\n{function(f'f{number}', [*lines, 's_setpc_b64 s[30:31]'])}"


def _body(number: int) -> list[str]:
    """Return eight instructions of a function, three of them loads that nothing waits for."""
    vector = 4 + number % 24
    return [
        *(f"global_load_dword v{4 + (number + step) % 24}, v0, s[4:5]" for step in (7, 13, 19)),
        *(f"v_add_f32 v{vector}, v1, v{2 + step % 2}" for step in range(3)),
        "s_add_u32 s8, s8, 1",
        "s_cmp_eq_u32 s8, 7",
    ]


def _program(code: str) -> CodeObject:
    return assembled(kernel_text(code, TARGET), TARGET)


def callees(count: int) -> CodeObject:
    """Return a kernel that calls each of `count` functions once, in 13 instructions for each."""
    calls = [line for number in range(count) for line in _call(f"f{number}")]
    functions = (_function(number, _body(number)) for number in range(count))
    return _program(function("k", [*calls, "s_endpgm"]) + "".join(functions))


def call_sites(count: int) -> CodeObject:
    """Return a kernel that calls one function from `count` places."""
    calls = [line for _ in range(count) for line in _call("f0")]
    return _program(function("k", [*calls, "s_endpgm"]) + _function(0, _body(0)))


def chain(count: int) -> CodeObject:
    """Return a kernel with a chain of `count` calls, each in the function that the previous one calls."""
    functions = []
    for number in range(count):
        saves = [f"v_writelane_b32 v40, s{30 + half}, {half}" for half in (0, 1)]
        restores = [f"v_readlane_b32 s{30 + half}, v40, {half}" for half in (0, 1)]
        calls = [*saves, *_call(f"f{number + 1}"), *restores] if number + 1 < count else []
        functions.append(_function(number, [*_body(number), *calls]))
    text = kernel_text(function("k", [*_call("f0"), "s_endpgm"]) + "".join(functions), TARGET, vgprs=48)
    return assembled(text, TARGET)


def pointers(count: int) -> CodeObject:
    """Return a kernel that makes `count` calls by pointers, in an object with as many functions in a table."""
    calls = [
        line
        for number in range(count)
        for line in (f"s_load_dwordx2 s[16:17], s[4:5], {8 * (number % 512)}", "s_swappc_b64 s[30:31], s[16:17]")
    ]
    functions = (_function(number, ["v_add_f32 v2, v1, v1"]) for number in range(count))
    table = "".join(f".quad f{number}\n" for number in range(count))
    data = f".data\n.globl table\n.p2align 3\ntable:\n{table}"
    return _program(function("k", [*calls, "s_endpgm"]) + "".join(functions) + data)


def sharing(count: int, shared: int = 20) -> CodeObject:
    """Return `count` kernels that each call the same functions, `shared` of them."""
    calls = [line for number in range(shared) for line in _call(f"f{number}")]
    functions = (_function(number, _body(number)) for number in range(shared))
    code = function("k0", [*calls, "s_endpgm"]) + "".join(functions)
    return assembled(_kernels(count, code, [*calls, "s_endpgm"]), TARGET)


def small_kernels(count: int) -> CodeObject:
    """Return `count` kernels of 31 instructions each, without calls; each waits at its end."""
    body = [line for number in range(3) for line in _body(number)][:22]
    lines = ["s_cmp_eq_u32 s9, 3", "s_cbranch_scc1 {0}_end", *body, "s_cmp_lg_u32 s10, 0", "s_cbranch_scc1 {0}_end"]
    lines += ["v_mov_b32 v3, 0", "s_waitcnt vmcnt(0)", "{0}_end:", "s_nop 0", "s_nop 0", "s_endpgm"]
    return assembled(_kernels(count, function("k0", [line.format("k0") for line in lines]), lines), TARGET)


def _kernels(count: int, first: str, lines: Iterable[str]) -> str:
    """Return the text of kernels `k0` with the code `first`, and further ones of lines with `{0}` for their names."""
    lines = list(lines)
    return "\n".join(
        kernel_text(
            first if not number else function(f"k{number}", [line.format(f"k{number}") for line in lines]),
            TARGET,
            name=f"k{number}",
        ).replace(DIALECTS, DIALECTS if not number else "")
        for number in range(count)
    )


def loops(count: int) -> CodeObject:
    """Return `count` nested loops, with a load at the beginning of each."""
    begins = [line for at in range(count) for line in (f"L{at}:", f"global_load_dword v{4 + at % 24}, v0, s[4:5]")]
    ends = [line for at in reversed(range(count)) for line in ("s_sub_u32 s8, s8, 1", f"s_cbranch_scc0 L{at}")]
    return _program(function("k", [*begins, *ends, "s_endpgm"]))


def branches(count: int) -> CodeObject:
    """Return a chain of `count` blocks, each with a load, and an addition that may be skipped."""
    lines = []
    for at in range(count):
        load, use = f"global_load_dword v{4 + at % 24}, v0, s[4:5]", f"v_add_f32 v2, v2, v{4 + (at + 12) % 24}"
        lines += [load, f"s_cbranch_scc1 L{at}", use, f"L{at}:"]
    return _program(function("k", [*lines, "s_endpgm"]))


PROGRAMS: dict[str, Callable[[int], CodeObject]] = {
    "functions called once": callees,
    "call sites of one function": call_sites,
    "chain of calls": chain,
    "calls by pointers": pointers,
    "kernels that share functions": sharing,
    "small kernels": small_kernels,
    "nested loops": loops,
    "if-chain": branches,
}
