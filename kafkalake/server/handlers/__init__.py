"""One module per API: decode (done before the call), authorize, one broker call, encode.

`handle(request)` returns the response's values (field names of Kafka's message definitions, see `wire.responses`), a coroutine
or generator that returns them, or None if it replies itself.
"""
