"""Text to stdout while it is generated, and when its first token came."""

import time
from typing import Any

from transformers import TextStreamer


class Streamer(TextStreamer):
    """Prints the generated text, not the prompt.

    ``first_token`` is the `time.perf_counter` at which the first new token arrived.
    """

    def __init__(self, tokenizer: Any, silent: bool) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.silent = silent
        self.first_token = 0.0
        self._calls = 0

    def put(self, value: Any) -> None:
        self._calls += 1
        if self._calls == 2:  # the first call brings the prompt
            self.first_token = time.perf_counter()
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if not self.silent:
            super().on_finalized_text(text, stream_end)
