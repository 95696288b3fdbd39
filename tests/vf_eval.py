"""Runs verifiers' `vf-eval` with a model that the test scripts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["Chat", "records_of", "serving_model"]

PROGRAMS = Path(sys.executable).parent
# What the trainer has uv install for the loops. It is in the virtual environment, so it
# is there the next time, and `make clean` removes it.
HOME = Path(sys.prefix) / "home"

# Returns the model's reply to the contents of the messages so far.
Chat = Callable[[Sequence[str]], str]


@contextlib.contextmanager
def serving_model(chat: Chat) -> Iterator[str]:
    """Serves a model as a chat server does, in a stream; yields its address."""

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = chat([message["content"] for message in asked["messages"]])
            begin = {"role": "assistant", "content": reply}
            events = [
                {"choices": [{"index": 0, "delta": begin, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            ]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            common = {"id": "1", "object": "chat.completion.chunk", "created": 1}
            for event in events:
                data = json.dumps({**common, "model": asked["model"], **event})
                self.wfile.write(f"data: {data}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def records_of(
    taskset: Mapping[str, Any],
    model: str,
    folder: Path,
    **config: Any,
) -> list[dict[str, Any]]:
    """Lets the trainer play each task of a taskset; returns its records.

    Args:
        taskset: The taskset's part of the configuration.
        model: The address of the model.
        folder: Where the trainer may write, and finds a taskset of the test.
        **config: Further parts of the configuration.
    """
    everything = {
        "model": "model",
        "client": {"base_url": model},
        "max_concurrent": 4,
        "output_dir": str(folder),
        "run": {"name": "run"},
        "rich": None,
        "push": False,
        "env": {"taskset": taskset},
        **config,
    }
    (folder / "config.json").write_text(json.dumps(everything))
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    settings = {
        "HOME": str(HOME),
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, paths)]),
        "UV_PYTHON": sys.executable,
        "UV_COMPILE_BYTECODE": "1",
    }
    told = subprocess.run(
        [PROGRAMS / "vf-eval", "@", folder / "config.json"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == told.returncode, told.stderr
    lines = (folder / "run" / "traces.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
