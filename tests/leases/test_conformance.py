from tests.leases.conformance import LeaseConformance


class TestConformance(LeaseConformance):
    pass
