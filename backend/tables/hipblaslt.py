"""hipBLASLt's calls in a program's output, a `hipblaslt-bench ...` line each, as
HIPBLASLT_LOG_MASK=32 prints them: the words with which its benchmark makes that call again.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.tables.gemm import FP8, NOT_ITS_FORM, Gemm, NotAProblem, unknown

WORD = "hipblaslt-bench"

_TYPES = {
    "f64_r": "float64",
    "f32_r": "float32",
    "f16_r": "float16",
    "bf16_r": "bfloat16",
}
_COMPUTED = {"f32_r": "highest", "c_f32_r": "highest", "xf32_r": "high", "f32_xf32_r": "high"}
"""Torch's precision of a float32 product, by what it is computed in."""
_SCALES = ("--scaleA", "--scaleB", "--scaleC", "--scaleD", "--scaleAlpha_vector")
_FALSE = ("0", "0.0", "none", "")


def gemm_of(line: str) -> Gemm | None:
    """What a line asks for; None for a line without a call. Raises NotAProblem."""
    _, found, behind = line.partition(f"{WORD} ")
    if not found:
        return None
    return gemm_of_words(_words(behind))


def gemm_of_words(words: Mapping[str, str]) -> Gemm | None:
    """What a call with these options asks for; None where they are none. Raises NotAProblem."""
    if "-m" not in words or "-n" not in words:
        return None  # a sentence about it
    if "--grouped_gemm" in words and _on(words, "--grouped_gemm"):
        raise NotAProblem("a group of products of unlike sizes")
    if any(_on(words, name) for name in _SCALES):
        raise NotAProblem(FP8)
    types = {words.get(f"--{name}_type", "") for name in "abcd"}
    if any(type.startswith(("f8", "bf8", "i8", "f4", "f6")) for type in types):
        raise NotAProblem(FP8)
    if len(types) != 1:
        raise NotAProblem("a result of another type than its operands")
    type = types.pop()
    if type not in _TYPES:
        raise unknown("the type", type)
    if _on(words, "--activation_type") or _on(words, "--use_e") or _on(words, "--gradient"):
        raise NotAProblem("a product with an activation or a gradient in it")
    if _factor(words, "--alpha", 1.0) != 1.0 or _factor(words, "--beta", 0.0) != 0.0:
        raise NotAProblem(
            "a product that is scaled, or added to what its result held (alpha, beta)"
        )
    bias = "--bias_vector" in words
    if bias and words.get("--bias_type", type) != type:
        raise NotAProblem("a bias of another type than the product")
    computed = words.get("--compute_type", "f32_r")
    if type == "f32_r" and computed not in _COMPUTED:
        raise unknown("the type that it computes in,", computed)
    return _gemm(words, _TYPES[type], bias, _COMPUTED[computed] if type == "f32_r" else None)


def _gemm(words: Mapping[str, str], dtype: str, bias: bool, precision: str | None) -> Gemm:
    batch = _number(words, "--batch_count", 1)
    return Gemm(
        trans_a=_transposed(words, "--transA"),
        trans_b=_transposed(words, "--transB"),
        m=_number(words, "-m") or 0,
        n=_number(words, "-n") or 0,
        k=_number(words, "-k") or 0,
        dtype=f"torch.{dtype}",
        lda=_number(words, "--lda", None),
        ldb=_number(words, "--ldb", None),
        batch=batch if batch != 1 else None,
        stride_a=_number(words, "--stride_a", None),
        stride_b=_number(words, "--stride_b", None),
        bias=bias,
        precision=precision,
    )


def _words(text: str) -> dict[str, str]:
    """The options, each with the word behind it unless that is an option too."""
    found: dict[str, str] = {}
    last = ""
    for word in text.split():
        if word.startswith("-") and not word[1:2].isdigit():
            last = word
            found[last] = ""
        elif last:
            found[last] = word
            last = ""
    return found


def _on(words: Mapping[str, str], name: str) -> bool:
    """Named, and not with a word that says no; a switch has no word."""
    return name in words and (words[name] not in _FALSE or _is_switch(name, words[name]))


def _is_switch(name: str, word: str) -> bool:
    return not word and name in ("--use_e", "--gradient", "--grouped_gemm", "--scaleAlpha_vector")


def _factor(words: Mapping[str, str], name: str, usual: float) -> float:
    try:
        return float(words.get(name, usual))
    except ValueError:
        raise NotAProblem(NOT_ITS_FORM) from None


def _number(words: Mapping[str, str], name: str, usual: int | None = 0) -> int | None:
    word = words.get(name)
    if word is None:
        return usual
    if not (word.isascii() and word.isdigit() and len(word) < 16):
        raise NotAProblem(NOT_ITS_FORM)
    return int(word)


def _transposed(words: Mapping[str, str], name: str) -> bool:
    word = words.get(name, "N")
    if word not in ("N", "T"):
        raise NotAProblem(NOT_ITS_FORM)
    return word == "T"
