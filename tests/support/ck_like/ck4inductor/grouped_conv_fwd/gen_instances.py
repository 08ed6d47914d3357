"""No convolutions here."""


def gen_conv_ops_library() -> list[object]:
    return []
