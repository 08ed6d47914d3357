"""What every Python that tests start does first: look for garbage seldom, and not when it ends; and
ask once what is the same in all of them. tests/conftest.py puts this folder on PYTHONPATH.

Half of what such a process costs is going through PyTorch's million objects, of which none is
garbage. A sixth is asking the compiler, anew for each fresh cache dir, whether it knows the
extensions that the CPU has, and what all of PyTorch's source hashes to: the answers are kept beside
what the compiler made (see ../compilers/kept.py).
"""

import atexit
import gc
import os
import sys

gc.set_threshold(200_000, 50, 50)
atexit.register(gc.freeze)

if "TRITON_TARGET" in os.environ:
    import triton_target  # noqa: F401

if "TEST_CPU" in os.environ:
    import avx2_cpu

    avx2_cpu.emulate()

HERE = os.path.dirname(os.path.abspath(__file__))
SUPPORT = os.path.dirname(HERE)
COMPILERS = os.path.join(SUPPORT, "compilers")


class _Finder:
    """Finds the modules that ask, by asking the others."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in ("torch._inductor.cpu_vec_isa", "torch._inductor.codecache"):
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((found for found in specs if found is not None), None)
        if spec is not None and spec.loader is not None:
            if HERE not in sys.path:  # a worker of pytest-xdist takes the path of its parent
                sys.path.append(HERE)
            import kept_answers

            kept_answers.watch(spec.loader)
        return spec


if COMPILERS in os.environ.get("PATH", "").split(os.pathsep) and "COMPILE_ANEW" not in os.environ:
    sys.meta_path.insert(0, _Finder())
