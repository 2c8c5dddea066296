"""The HTTP server: features by key, Feast's protocol, health, metrics, and a page to try it.

Raw ASGI on uvicorn. A request is decoded, fetched and encoded by three calls that are compiled;
everything else is looked up once and kept, so that the server takes a few microseconds of it.
"""
