"""The core: values in, values out; decides everything and does nothing."""
