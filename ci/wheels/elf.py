"""ELF headers of compiled modules, and the faults that a published wheel must not have."""

import io
import re
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from .targets import GLIBC, Target

ELF_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
SYSTEM_LIBRARIES = {
    "manylinux": {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"},
    "musllinux": {"libc.so", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"},
}
# hooks that a loader fills where it knows them; they are weak, so none has to be there
LOADER_HOOKS = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"}
# musl's symbols that the modules call; they have no versions to distinguish them from those of other libraries
MUSL_CALLS = frozenset(
    "abort bcmp calloc free fstat getauxval getenv madvise malloc memchr memcmp memcpy memmove memset mincore mmap"
    " msync munmap posix_memalign qsort realloc strcmp strerror strlen strncmp strrchr syscall sysconf usleep"
    " __errno_location".split()
)
DEBUG_SECTIONS = re.compile(r"^\.(z?debug_|symtab$|strtab$|gdb_index$|comment\.debug)")
GLIBC_VERSION = re.compile(r"^GLIBC_(\d+)\.(\d+)(?:\.\d+)?$")
EXECUTABLE = 1  # PF_X
BIND_NOW = {"DT_FLAGS": 8, "DT_FLAGS_1": 1}  # DF_BIND_NOW, DF_1_NOW


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that another library has to give, with the version asked for, or that this one gives to others."""

    name: str
    version: str | None = None
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Module:
    """The facts of one compiled module."""

    machine: str
    libraries: frozenset[str]
    search_paths: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    exported: frozenset[str]
    sections: frozenset[str]
    stack_flags: int | None
    relro: bool
    bound_at_start: bool
    text_relocations: bool


def read_module(data: bytes) -> Module:
    """Read the facts; raises ValueError for bytes that are no ELF file with a dynamic section."""
    try:
        elf = ELFFile(io.BytesIO(data))
        dynamic = elf.get_section_by_name(".dynamic")
        table = elf.get_section_by_name(".dynsym")
    except ELFError as error:
        raise ValueError(f"no ELF file: {error}") from error
    if not isinstance(dynamic, DynamicSection) or not isinstance(table, SymbolTableSection):
        raise ValueError("an ELF file without a dynamic section")
    tags = list(dynamic.iter_tags())
    names = {tag.entry.d_tag for tag in tags}
    segments = {segment.header.p_type: segment.header for segment in elf.iter_segments()}
    stack = segments.get("PT_GNU_STACK")
    symbols = list(symbols_of(elf, table))
    return Module(
        machine=elf.header.e_machine,
        libraries=frozenset(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        search_paths=tuple(
            getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower())
            for tag in tags if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")
        ),
        undefined=tuple(symbol for symbol, defined in symbols if not defined),
        exported=frozenset(symbol.name for symbol, defined in symbols if defined),
        sections=frozenset(section.name for section in elf.iter_sections()),
        stack_flags=None if stack is None else stack.p_flags,
        relro="PT_GNU_RELRO" in segments,
        bound_at_start="DT_BIND_NOW" in names
        or any(BIND_NOW.get(tag.entry.d_tag, 0) & tag.entry.d_val for tag in tags),
        text_relocations="DT_TEXTREL" in names,
    )  # fmt: skip


def symbols_of(elf: ELFFile, table: SymbolTableSection) -> list[tuple[Symbol, bool]]:
    """Return each dynamic symbol, and whether it is defined here; local ones and the sections' own are left out."""
    needed = needed_versions(elf)
    versions = elf.get_section_by_name(".gnu.version")
    found = []
    for number, symbol in enumerate(table.iter_symbols()):
        binding, place = symbol.entry.st_info.bind, symbol.entry.st_shndx
        if not symbol.name or binding == "STB_LOCAL":
            continue
        index = versions.get_symbol(number).entry.ndx if versions is not None else None
        version = needed.get(index) if isinstance(index, int) else None
        found.append((Symbol(symbol.name, version, binding == "STB_WEAK"), place != "SHN_UNDEF"))
    return found


def needed_versions(elf: ELFFile) -> dict[int, str]:
    """Return the names of the needed versions, by the number that a symbol has for each."""
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return {}
    return {entry.entry.vna_other: entry.name for _, entries in section.iter_versions() for entry in entries}


def faults(module: Module, target: Target, name: str) -> list[str]:
    """Return the faults of the module `name` (the last part of its dotted name) in a wheel for `target`."""
    found = []
    if module.machine != ELF_MACHINES[target.machine]:
        found.append(f"is made for {module.machine}, not {ELF_MACHINES[target.machine]}")
    for library in sorted(module.libraries - SYSTEM_LIBRARIES[target.libc]):
        found.append(f"needs the library {library}")
    for path in module.search_paths:
        found.append(f"has the library search path {path!r}")
    for section in sorted(module.sections):
        if DEBUG_SECTIONS.match(section):
            found.append(f"holds debug information ({section})")
    if module.stack_flags is None or module.stack_flags & EXECUTABLE:
        found.append("asks for an executable stack")
    if not module.relro or not module.bound_at_start:
        found.append("leaves its relocations writable (no full RELRO)")
    if module.text_relocations:
        found.append("has relocations in its code")
    for extra in sorted(module.exported - {f"PyInit_{name}"}):
        found.append(f"gives the symbol {extra} to others")
    if f"PyInit_{name}" not in module.exported:
        found.append(f"has no PyInit_{name}")
    return found + [text for symbol in module.undefined if (text := symbol_fault(symbol, target))]


def symbol_fault(symbol: Symbol, target: Target) -> str | None:
    """Return the fault of a needed symbol; None for Python's own and for those of libc that are old enough."""
    if symbol.name.startswith(("Py", "_Py")) or (symbol.weak and symbol.name in LOADER_HOOKS):
        return None
    if target.libc == "musllinux":
        return None if symbol.name in MUSL_CALLS and not symbol.version else f"calls {symbol.name}, which musl may lack"
    version = GLIBC_VERSION.match(symbol.version or "")
    if version is None:
        return f"calls {symbol.name} of {symbol.version or 'an unnamed library'}"
    if (int(version[1]), int(version[2])) > GLIBC:
        return f"calls {symbol.name} of {symbol.version}, newer than {GLIBC[0]}.{GLIBC[1]}"
    return None


def newest_glibc(modules: list[Module]) -> str:
    """Return the newest version of glibc that a module needs, as `2.14`; a dash if none is needed."""
    versions = [
        (int(match[1]), int(match[2]))
        for module in modules
        for symbol in module.undefined
        if (match := GLIBC_VERSION.match(symbol.version or ""))
    ]
    return "{}.{}".format(*max(versions)) if versions else "-"
