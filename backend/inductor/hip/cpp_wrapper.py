"""Our kernels in a wrapper of C++: `cpp_wrapper`, and the models of AOTInductor.

Such a wrapper may run where there is no Python, no compiler and none of our files, so it holds the
compiled library itself, as text: the first call writes it into memory (`memfd_create`), loads it
from there and finds the entry. The graph, or the package, is then all that is needed, on a machine
whose processor or GPU can run what was compiled here.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from backend.disk import trusted
from backend.disk.layout import cache_dir
from backend.inductor.torch import graph as torch_graph
from backend.templates.rendering import CallArg
from backend.toolchain import code_cache
from backend.toolchain.errors import LoadError
from backend.toolchain.target import CompileOptions, parse_target

_RUNTIME = """\
#ifndef ROCM_TUI_KERNEL
#define ROCM_TUI_KERNEL
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>
#include <stdexcept>
#include <string>
namespace rocm_tui {
inline std::string decoded(const char* base64) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char* at = base64; *at != 0 && *at != '='; ++at) {
    const char c = *at;
    const uint32_t six = c >= 'a' ? c - 'a' + 26 : c >= 'A' ? c - 'A'
        : c >= '0' ? c - '0' + 52 : c == '+' ? 62 : 63;
    bits = bits << 6 | six;
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8) & 255));
  }
  return bytes;
}
[[noreturn]] inline void fail(const char* name, const std::string& why) {
  throw std::runtime_error(std::string("rocm-tui kernel ") + name + ": " + why);
}
// A library that is loaded from memory and stays until the process ends.
struct Kernel {
  const char* name;
  void* library;
  void* entry;
  Kernel(const char* name, const char* entry_name, const std::string& place, const char* base64)
      : name(name) {
    const std::string bytes = decoded(base64);
    const int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0) fail(name, "memory cannot be had for its library");
    for (size_t done = 0; done < bytes.size();) {
      const auto written = write(file, bytes.data() + done, bytes.size() - done);
      if (written <= 0) fail(name, "its library cannot be written into memory");
      done += static_cast<size_t>(written);
    }
    library = dlopen(("/proc/self/fd/" + place + std::to_string(file)).c_str(), RTLD_NOW);
    const char* why = library == nullptr ? dlerror() : "its entry is missing";
    close(file);
    entry = library == nullptr ? nullptr : dlsym(library, entry_name);
    if (entry == nullptr) fail(name, why);
  }
  void check(int code) const {
    if (code == 0) return;
    const auto text = reinterpret_cast<const char* (*)(int)>(dlsym(library, "rocm_tui_error_text"));
    const char* why = text == nullptr ? nullptr : text(code);
    fail(name, "error " + std::to_string(code) + (why == nullptr ? "" : std::string(", ") + why));
  }
};
}  // namespace rocm_tui
#endif
"""

_LINE = 4096
"""Characters of a string literal; the compiler joins them."""


def definition(
    alias: str,
    entry: str,
    args: Sequence[CallArg],
    source: str,
    target: str,
    options: CompileOptions,
) -> str:
    """C++ of the function `alias`, which calls the entry of `source`, compiled for `target`.

    It takes the arguments of the entry but for the first of its tail. Raises what the toolchain
    raises, and LoadError where a library cannot be loaded by a program.
    """
    library = _library(source, target, options)
    parameters = ", ".join(f"{_type(arg)} {arg.name}" for arg in args)
    types = ", ".join(_type(arg) for arg in args)
    names = ", ".join(arg.name for arg in args)
    return (
        f"{_RUNTIME}"
        f"static void {alias}({parameters}, void* workspace, void* stream) {{\n"
        f'  static const rocm_tui::Kernel kernel("{alias}", "{entry}", "{_place(library)}",\n'
        f"{_literal(library)});\n"
        f"  using Entry = int (*)({types}, size_t*, void*, void*);\n"
        f"  kernel.check(reinterpret_cast<Entry>(kernel.entry)(\n"
        f"      {names}, nullptr, workspace, stream));\n"
        f"}}\n"
    )


def _type(arg: CallArg) -> str:
    """As the C ABI passes it; the entry knows what a pointer points to."""
    return "const void*" if arg.kind == "input" else "void*" if arg.kind == "output" else arg.ty


def _library(source: str, target: str, options: CompileOptions) -> bytes:
    root = cache_dir()
    compiled = code_cache.compile(source, parse_target(target), options, cache_root=root)
    if not compiled.loadable:
        raise LoadError(f"{compiled.path} is a code object alone, which no program can load")
    return trusted.read_file(root, compiled.path)


def _place(content: bytes) -> str:
    """A piece of path that leads nowhere, other for each content. The C library takes two files of
    one path for the same, and numbers of open files are used again."""
    number = int(hashlib.sha256(content).hexdigest()[:32], 16)
    bits = f"{number:0128b}"
    return "".join("./" if bit == "1" else "/" for bit in bits)


def _literal(content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = (text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return "\n".join(f'"{line}"' for line in lines)


def write_call(alias: str, arguments: Sequence[str], node: Any) -> None:
    """The call of `alias` with `arguments`, its workspace around it."""
    device = node.get_device()
    wrapper = torch_graph.graph().wrapper_code
    with torch_graph.workspace(node.get_workspace_size(), device) as memory:
        workspace = "nullptr" if memory is None else f"{memory.outer_name}.data_ptr()"
        with torch_graph.cpp_stream(device) as stream:
            call = ", ".join([*arguments, workspace, stream])
            wrapper.writeline(f"{alias}({call});")
