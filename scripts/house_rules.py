"""Check rules of this project that no linter has. `make check` runs them; tests/house plants a violation of each.

facts     Facts about hardware come from a target: nothing outside luthier.arch and the emulator's operations compares
          generations (`Target.major`, `Target.generation`) or names of processors and generations.
units     Register units have names: there are no bare unit numbers outside luthier.arch, luthier.isa and the
          emulator's operations.
facades   A module imports only modules from the packages that contain it: their `__init__` imports names when they are
          first used, so that a small import may load any module of the package.
names     Dotted names of Luthier and paths of its sources in docstrings and C++ comments exist.
english   Summaries of docstrings begin with a verb, those of modules and classes with a noun: not with "What" or "How".
          PHRASES are in no docstring, comment, message or page. An error's message is a sentence.
classes   The name of a class stands for one class of the product (docs/naming.md).
locals    No variable or parameter has a name of NO_NAMES, which say nothing; comprehensions may.
foreign   Output passes luthier.terminal, which makes unprintable characters in names from files visible.

import-linter checks imports between packages by the contracts in pyproject.toml.

Use: python scripts/house_rules.py [ROOT]
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

FACTS_LIVE_IN = ("runtime/luthier/arch/", "runtime/luthier/emulator/operations/")
UNITS_LIVE_IN = ("runtime/luthier/isa/", *FACTS_LIVE_IN)
NATIVE_FACTS_LIVE_IN = ("runtime/native/mc/",)
"""The C++ behind luthier.isa."""

_NUMBERS = ("major", "emulated_major", "generation")
NAME = re.compile(r"gfx\d[0-9a-f]*(-\w+)*|GFX\d\w*")
"""A processor, a generation, or a prefix of their names."""
HAND_DOWN = {"operations_of", "Variant", "__init__"}
"""Calls that take a generation's number to select declarations: the emulator's operations and their code."""

CERTAIN_UNITS = {102, 104, 106, 107, 108, 124, 126, 127}
"""Numbers that are almost always registers: FLAT_SCRATCH, XNACK_MASK, VCC, trap temporaries, M0, EXEC."""
LIKELY_UNITS = {128, 129, 130, 131, 132, 256, 512, 768, 1024, 1280, 1536}
"""Numbers that are units, or counts of units, in statements that mention registers."""
REGISTERS = re.compile(r"(?i)\bunits?\b|register|[sva]gprs?\b|\b[sva]gpr|\bvectors?\b|ttmp|\bexec\b|\bvcc\b|\bscc\b")
NO_UNITS = {
    ("luthier_build/wrapper.py", 127): "the shell's exit code for a missing program",
    ("runtime/luthier/run/program.py", 124): "the exit code of a program that timed out",
    ("runtime/luthier/patch/output/companion_code.py", 127): "the seven bits of a scalar operand",
    ("runtime/luthier/objects/line_header.py", 127): "the seven bits of a byte of a LEB128 number",
    ("runtime/luthier/emulator/layout.py", 256): "the number of vector registers of a wave in the emulator",
}

PRINTED_IN = "runtime/luthier/terminal.py"
PRINTERS = re.compile(r"print|(traceback\.)?print_(exc|exception|stack|tb)|(argparse\.)?ArgumentParser")
"""Calls that print; the last one prints unknown arguments."""
NO_PRINTERS = {
    ("runtime/luthier/payload/isolation.py", "write"): "to the parent process, which reads it",
    ("runtime/luthier/cli/completion.py", "ArgumentParser"): "parses nothing",
    ("luthier_build/__main__.py", "ArgumentParser"): "for programs, with one argument of three",
}
STREAM = re.compile(r"sys\.(__)?std(out|err)(__)?")

DOTTED = re.compile(r"(?<![\w./-])luthier(?:_build)?(?:\.\w+)+")
SOURCE = re.compile(r"(?<![\w./<-])(?:runtime/)?(?:luthier|luthier_build|native)/[\w/]+\.(?:py|h|cpp)\b")
NO_SUMMARY = re.compile(
    r"(What|How|Of|Whether|Where|When|Which|Who|Why|If|That|It|Is|Are|In|By|To|For|From|At|On|With)\b"
)
"""Words that must not begin the summary of a docstring, because they begin a clause without a sentence."""

NO_NAMES = {"one", "found", "told", "said", "here", "there", "mine", "others"}
PHRASES = re.compile(
    r"(?i)\b(nobody (knows|asked)|of a stranger|strangers?'|(says|told) of (it|them|itself)|is no error if|X are it|"
    r"went on behind it|are of no line|of which nothing is|has it that|one behind the other)(?!\w)"
)
"""Phrases of another language's grammar, or that need the author."""
NO_WORDS = {"scripts/house_rules.py", "tests/house/test_rules.py", "docs/naming.md", "CHANGELOG.md", "docs/api.md"}
"""Files that quote what the rules forbid, or are made from sources."""
NO_SENTENCE = re.compile(r"(\{\}\s*)?[\w-]+(\s*\{\})?")
"""Errors' messages of one word and a value: they do not say what is wrong."""

NO_MODULES = re.compile(
    r"luthier\.(commands|refreshers|compilers|tools|checks|report_formats|report_rules"  # groups of entry points
    r"|pc|original|manifest|targets|intrinsics|input|output|launch\.REGISTER|NAME"  # names in LLVM IR and objects
    r"|h|channel)"  # a header, and the prefix of channels
)
"""Texts that look like module names but are not."""

COMPARED_IN_C = re.compile(
    r"\bmajor_?\b(\(\))?\s*([<>]=?|[!=]=)|((?<!-)[<>]=?|[!=]=)\s*[\w.>-]*\bmajor_?\b|"
    r"\bswitch\b[^;{]*\bmajor_?\b|([!=]=|starts_with\()\s*\"gfx"
)


def findings(path: str, text: str) -> Iterator[str]:
    """Yield the violations in one source file.

    Args:
        path: relative to the root of the repository, with slashes.
    """
    if path.startswith(FACTS_LIVE_IN + NATIVE_FACTS_LIVE_IN):
        if path.endswith(".py"):
            tree = ast.parse(text)
            yield from _everywhere(path, tree)
        else:
            yield from _names(path, _comments(text))
        return
    if not path.endswith(".py"):
        yield from _names(path, _comments(text))
        for number, line in enumerate(text.splitlines(), 1):
            if COMPARED_IN_C.search(line.partition("//")[0]):
                yield f"{path}:{number}: facts: compares generations: {line.strip()}"
        return
    tree = ast.parse(text)
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            child.parent = parent  # type: ignore[attr-defined]
    yield from _facts(path, tree)
    if not path.startswith(UNITS_LIVE_IN):
        yield from _units(path, tree)
    yield from _everywhere(path, tree)


def _everywhere(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the violations of rules that hold in every Python source."""
    yield from _facades(path, tree)
    yield from _foreign(path, tree)
    yield from _names(path, _docstrings(tree))
    yield from _english(path, tree)
    yield from _locals(path, tree)
    yield from _messages(path, tree)


def _locals(path: str, tree: ast.Module) -> Iterator[str]:
    exempt = set()  # names in comprehensions, and fields of classes
    for node in ast.walk(tree):
        targets = [node.target] if isinstance(node, ast.comprehension) else []
        if isinstance(node, ast.ClassDef):
            targets = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
        exempt |= {id(name) for target in targets for name in ast.walk(target)}
    for node in ast.walk(tree):
        bound = node.arg if isinstance(node, ast.arg) else None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in exempt:
            bound = node.id
        if bound in NO_NAMES:
            yield f"{path}:{node.lineno}: locals: {bound} does not say what it is"  # type: ignore[attr-defined]


def _messages(path: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = node.exc.args[0]
            if ast.unparse(node.exc.func).endswith("Error") and isinstance(message, ast.JoinedStr | ast.Constant):
                parts = message.values if isinstance(message, ast.JoinedStr) else [message]
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
                if NO_SENTENCE.fullmatch(text):
                    yield f"{path}:{node.lineno}: english: an error without a sentence: {text}"


def _phrases(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if match := PHRASES.search(line):
            yield f"{path}:{number}: english: write it plainly: {match[0]}"


def worded(path: str, text: str) -> Iterator[str]:
    """Yield what breaks a rule about words in a file: a test, an example, a script, a page."""
    if path not in NO_WORDS:
        yield from _phrases(path, text)
        if path.endswith(".py"):
            yield from _locals(path, ast.parse(text))


def shared_classes(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the classes of the product that share their name with another."""
    places = defaultdict(list)
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not (node.name == "Options" and "options" in path):
                places[node.name].append(f"{path}:{node.lineno}")
    for name, where in places.items():
        if len(where) > 1:
            yield f"{where[0]}: classes: {name} is the name of {len(where)} classes, also at {', '.join(where[1:])}"


def _facts(path: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _NUMBERS and _is_target(path, node.value):
            if not _handed_down(node):
                yield f"{path}:{node.lineno}: facts: {ast.unparse(node)} decides something: ask the target for the fact"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            if _decides(node):
                yield f"{path}:{node.lineno}: facts: the name {node.value!r} decides something: ask the target"
        elif isinstance(node, ast.Name) and node.id in ("major", "generation") and _decides(node):
            if not path.startswith("luthier_build/"):  # there, it is clang's version
                yield f"{path}:{node.lineno}: facts: {node.id} decides something: ask the target for the fact"
        elif isinstance(node, ast.Name) and re.fullmatch(r"GFX\d\w*", node.id) and _decides(node):
            yield f"{path}:{node.lineno}: facts: the generation {node.id} decides something: ask the target"


def _is_target(path: str, value: ast.expr) -> bool:
    """Return whether `value` is a target; in luthier_build, versions of clang have a `major` too."""
    return not path.startswith("luthier_build/") or ast.unparse(value).endswith("target")


def _handed_down(node: ast.expr) -> bool:
    """Return whether a value is only passed to code that selects by generation, or stored for that."""
    parent = node.parent  # type: ignore[attr-defined]
    if isinstance(parent, ast.keyword):
        parent = parent.parent  # type: ignore[attr-defined]
    if isinstance(parent, ast.Call):
        called = parent.func
        return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in HAND_DOWN
    if isinstance(parent, ast.Assign):  # self.major = …, in the builder used by operations
        return all(isinstance(target, ast.Attribute) for target in parent.targets)
    return False


def _decides(node: ast.expr) -> bool:
    """Return whether a name is compared, looked up, or used as a key."""
    at: ast.AST = node
    parent = node.parent  # type: ignore[attr-defined]
    while isinstance(parent, (ast.Tuple, ast.List, ast.Set)):
        at, parent = parent, parent.parent  # type: ignore[attr-defined]
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Attribute) and parent.func.attr in ("startswith", "endswith", "get", "match")
    return (
        isinstance(parent, (ast.Compare, ast.MatchValue))
        or (isinstance(parent, ast.Subscript) and parent.slice is at)
        or (isinstance(parent, ast.Dict) and at in parent.keys)
    )


def _units(path: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or type(node.value) is not int or (path, node.value) in NO_UNITS:
            continue
        if node.value in CERTAIN_UNITS or (node.value in LIKELY_UNITS and REGISTERS.search(_around(node))):
            yield f"{path}:{node.lineno}: units: {node.value} is a register unit: take it from luthier.isa.registers"


def _around(node: ast.expr) -> str:
    """Return the text of the smallest statement, dictionary entry or argument that contains a number."""
    at: ast.AST = node
    while not isinstance(at, ast.stmt):
        parent = at.parent  # type: ignore[attr-defined]
        if isinstance(parent, ast.Dict) and at in parent.values:
            key = parent.keys[parent.values.index(at)]  # type: ignore[arg-type]
            return f"{ast.unparse(key) if key else ''} {ast.unparse(at)}"
        if isinstance(parent, ast.keyword):
            return ast.unparse(parent)
        if hasattr(parent, "body") and at is not getattr(parent, "body", None) and not isinstance(parent, ast.expr):
            break  # the head of a compound statement
        at = parent
    return ast.unparse(at)


def _facades(path: str, tree: ast.Module) -> Iterator[str]:
    module = path.removeprefix("runtime/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and f"{module}.".startswith(f"{node.module}."):
            if node.module == module:  # a package's own modules, in its __init__
                continue
            for name in node.names:
                if not _is_module(path, node.module, name.name) and name.name != "__version__":
                    yield (
                        f"{path}:{node.lineno}: facades: {name.name} comes from {node.module}, which {module} is part "
                        "of: name the module that has it"
                    )


def _foreign(path: str, tree: ast.Module) -> Iterator[str]:
    if path == PRINTED_IN:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and STREAM.fullmatch(ast.unparse(node.value)):
            prints = node.attr in ("write", "writelines", "buffer")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            prints = PRINTERS.fullmatch(called) is not None
            if called in ("json.dump", "os.write"):  # also to a descriptor number
                prints = any(STREAM.match(text) or text in ("1", "2") for text in map(ast.unparse, node.args))
            prints = prints and (path, called.split(".")[-1]) not in NO_PRINTERS
        else:
            continue
        if prints:
            yield f"{path}:{node.lineno}: foreign: {ast.unparse(node):.40} prints: let luthier.terminal do it"


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of string statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of C++ comments."""
    for number, line in enumerate(text.splitlines(), 1):
        yield number, line.partition("//")[2]


def _english(path: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            if NO_SUMMARY.match(summary):
                yield f"{path}:{getattr(node, 'lineno', 1)}: english: no verb or noun first: {summary:.40}"


def _names(path: str, texts: Iterator[tuple[int, str]]) -> Iterator[str]:
    for number, text in texts:
        for name in DOTTED.findall(text):
            if not NO_MODULES.fullmatch(name) and not _exists(name):
                yield f"{path}:{number}: names: there is no {name}"
        for name in SOURCE.findall(text):
            if not any((ROOT / start / name).exists() for start in ("", "runtime", "compiler_plugin/include")):
                yield f"{path}:{number}: names: there is no {name}"


def _exists(name: str) -> bool:
    """Return whether a dotted name is a module, a name in a module, or an attribute of a class in a module."""
    at, *parts = name.split(".")
    folder = ROOT / ("runtime" if at == "luthier" else "") / at
    while parts and (folder / parts[0]).is_dir():
        folder /= parts.pop(0)
    module = folder / "__init__.py"
    if parts and any(folder.glob(f"{parts[0]}.*")):
        module = folder / f"{parts.pop(0)}.py"
        if not module.exists():  # the native module has a stub
            module = module.with_suffix(".pyi")
    return not parts or _has(module, parts)


def _has(module: Path, names: list[str]) -> bool:
    """Return whether a module has a name and the class of that name the attributes; imported names have any."""
    body = _parsed(module).body
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == names[0] for alias in node.names):
            return True
    for name in names:
        match = next((node for node in body if name in _defined(node)), None)
        if match is None:
            return False
        body = match.body if isinstance(match, ast.ClassDef) else []
    return True


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {child.id for target in targets for child in ast.walk(target) if isinstance(child, ast.Name)}


@functools.cache
def _parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text("utf-8"))


def _is_module(path: str, package: str, name: str) -> bool:
    """Return whether `name` is a module of `package`, which contains the file `path`."""
    depth = package.count(".") + 1 + path.startswith("runtime/")
    folder = ROOT.joinpath(*path.split("/")[:depth])
    return any(folder.glob(f"{name}.py*")) or (folder / name).is_dir()


ROOT = Path(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else Path(__file__).parents[1]


def sources(root: Path) -> Iterator[Path]:
    """Yield every file to check."""
    for folder, endings in (
        ("runtime/luthier", ("py",)),
        ("luthier_build", ("py",)),
        ("examples/tools", ("py",)),
        ("runtime/native", ("cpp", "h")),
        ("compiler_plugin", ("cpp", "h")),
    ):
        for ending in endings:
            paths = sorted((root / folder).rglob(f"*.{ending}"))
            yield from (path for path in paths if "build" not in path.relative_to(root).parts)


def worded_files(root: Path) -> Iterator[Path]:
    """Yield the files outside the product that rules about words are about."""
    for folder in ("tests", "benchmarks", "scripts", "examples", "docs"):
        ending = "md" if folder == "docs" else "py"
        for path in sorted((root / folder).rglob(f"*.{ending}")):
            if not {"build", "tools"} & set(path.relative_to(root).parts[1:]) or folder == "tests":
                yield path
    yield from sorted(root.glob("*.md"))


def main() -> int:
    """Print the violations; return 1 if there are any."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sources(ROOT)}
    breaches = [breach for path, text in texts.items() for breach in findings(path, text)]
    breaches += shared_classes(
        {path: text for path, text in texts.items() if path.endswith(".py") and not path.startswith("examples/")}
    )
    for path in worded_files(ROOT):
        breaches += worded(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    print("\n".join(breaches) or "the house rules hold")
    return bool(breaches)


if __name__ == "__main__":
    sys.exit(main())
