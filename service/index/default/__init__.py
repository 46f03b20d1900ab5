"""The index that is used unless another is asked for: immutable parts, and a small delta that is scanned."""
