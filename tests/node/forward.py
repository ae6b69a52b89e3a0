"""Let Pods reach what listens on loopback: `forward.py ADDRESS PORT URL` passes connections on, as they are.

The API server listens on one address, which is 127.0.0.1; Pods come to the address of their bridge.
"""

import asyncio
import sys
from contextlib import suppress
from urllib.parse import urlsplit

CHUNK = 65536


async def main(address: str, port: int, host: str, target: int) -> None:
    """Serve until the process is ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    server = await asyncio.start_server(answer, address, port)
    async with server:
        await server.serve_forever()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction of a connection; its end ends the other one too."""
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    URL = urlsplit(sys.argv[3])
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), URL.hostname or "", URL.port or 443))
