"""HTTP without TLS, to a service of this machine: httpx would read the authorities, 27 ms of CPU for each call.

A machine may be slow: only what hangs takes longer than the timeout.
"""

from functools import partial

import httpx

get = partial(httpx.get, verify=False, timeout=60)
post = partial(httpx.post, verify=False, timeout=60)
