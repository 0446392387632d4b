"""Parts of `scripts/bench detect`: nights made from recorded trainings, and the rules that judge them."""
