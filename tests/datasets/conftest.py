from tests.broker import broker

__all__ = ["broker"]
