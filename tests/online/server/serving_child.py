"""A server in a process of its own: `serving_child.py WORKERS OPENING [TOKEN_FILE]`.

It prints its address, and then what its exit code will be.
"""

from __future__ import annotations

import sys

import serving_fake

from windrow.online.server.limits import Limits
from windrow.online.server.settings import Settings
from windrow.online.server.supervisor import serve

if __name__ == "__main__":
    settings = Settings(
        port=0,
        workers=int(sys.argv[1]),
        token_file=sys.argv[3] if len(sys.argv) > 3 else None,
        limits=Limits(timeout=5.0),
    )
    opening = getattr(serving_fake, sys.argv[2])
    sys.exit(serve(opening, settings, lambda address: print(address, flush=True)))
