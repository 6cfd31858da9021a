"""One module per API: decode (done when it is called), authorise, one broker call, encode.

`handle(request)` returns the answer's values (field names of Kafka's message definitions, see `wire.responses`), a coroutine
that gives them, or None when it replies by itself.
"""
