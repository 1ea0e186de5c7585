"""The command line that all peers share. It is parsed before the imports of a peer, which take
seconds, so that --help works without them."""

import argparse
import importlib.util
import sys


def parse(description, needs, **more):
    """Returns the arguments; more has further ones, by name. Ends the program if a package that it
    needs is not installed."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("data", help="halognn DATASET directory")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--fanouts", type=lambda s: [int(f) for f in s.split(",")], default=[15, 10, 5],
                   help="neighbours a vertex, the hop next to the seeds first")
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--threads", type=int, default=2, help="threads that compute")
    p.add_argument("--workers", type=int, default=0, help="processes that prepare minibatches")
    p.add_argument("--bf16", action="store_true", help="compute under torch.autocast in bfloat16")
    p.add_argument("--sampler", action="store_true", help="only time the sampler on one thread")
    for name, options in more.items():
        p.add_argument("--" + name, **options)
    a = p.parse_args()
    require(needs)
    return a


def require(needs):
    """Ends the program if a package is not installed."""
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.argv[0]}: not installed: {', '.join(missing)}; profiling/lab/peers/setup.sh "
                 "makes a Python that has it")
