"""python3 -m halognn FORMAT IN OUT [flags of `halognn import`]: a published graph into a DATASET."""

import sys

from .formats import FORMATS, read
from .program import HalognnError, call, stored


def main(words):
    if len(words) < 3 or words[0] not in FORMATS:
        print(f"usage: python3 -m halognn {'|'.join(FORMATS)} IN OUT [flags of `halognn import`]",
              file=sys.stderr)
        return 2
    form, path, out, *flags = words
    try:
        split = next((b.removeprefix("--split=") for a, b in zip(["", *flags], flags)
                      if a == "--split" or b.startswith("--split=")), "")
        graph = read(form, path, split)
        with stored(graph) as arguments:
            if {"--undirected", "--directed"} & set(flags):
                arguments = [a for a in arguments if a not in ("--undirected", "--directed")]
            print(call(["import", *arguments, "--out", out, *flags]), end="")
        for name in graph.left:
            print(f"  note      {name} is not read")
    except (HalognnError, OSError, ModuleNotFoundError, ValueError) as error:  # a FormatError is a ValueError
        print(f"halognn: {error}", file=sys.stderr)
        return getattr(error, "code", 3)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
