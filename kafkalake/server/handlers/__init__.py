"""One module per API: decode (done before the call), authorize, one broker call, encode.

`handle(request)` returns the response (see `wire.messages`), a coroutine or generator
that returns it, or None if it replies itself.
"""
