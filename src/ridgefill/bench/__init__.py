"""What filling costs and gains in time: TTFT against the exact prefill, and the cost of a fit."""
