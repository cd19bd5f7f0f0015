"""What a row plan costs in quality: retrieval and loss, paired with the exact prefill."""
