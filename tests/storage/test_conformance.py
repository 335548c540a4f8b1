from tests.storage.conformance import StoreConformance


class TestConformance(StoreConformance):
    pass
