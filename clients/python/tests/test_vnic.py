"""What vnic does without a daemon. `python3 -m unittest` runs it; so does the case clients-python of tests/run."""

import tempfile
import unittest
from concurrent import futures
from pathlib import Path

import grpc

import vnic
from vnic import v1


class Moody(v1.ServerServiceServicer):
    """Is there from the third call of a method on."""

    def __init__(self):
        self.calls = {}
        self.ids = set()
        self.features = []

    def answer(self, name, context, message):
        self.ids.update(value for key, value in context.invocation_metadata() if key == "vnic-request-id")
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.calls[name] < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return message

    def GetServerInfo(self, request, context):
        return self.answer("GetServerInfo", context, v1.ServerInfo(version="1", features=self.features))

    def SetLogLevel(self, request, context):
        return self.answer("SetLogLevel", context, v1.LogLevel())


class Test(unittest.TestCase):
    def test_each_service_has_a_stub(self):
        stubs = {stub for name, stub in vars(v1).items() if name.endswith("ServiceStub")}
        self.assertEqual(set(vnic._SERVICES.values()), stubs)
        self.assertEqual(set(vnic._SERVICES), set(vnic.Client.__annotations__))

    def test_what_only_reads_and_what_has_an_id_is_asked_again(self):
        server, moody = grpc.server(futures.ThreadPoolExecutor()), Moody()
        v1.add_ServerServiceServicer_to_server(moody, server)
        with tempfile.TemporaryDirectory() as directory:
            endpoint = f"unix:{directory}/socket"
            server.add_insecure_port(endpoint)
            server.start()
            with vnic.connect(endpoint) as nic:
                self.assertEqual(nic.server.GetServerInfo(v1.GetServerInfoRequest()).version, "1")
                with self.assertRaises(grpc.RpcError) as refused:
                    nic.server.SetLogLevel(v1.SetLogLevelRequest())
                self.assertFalse(moody.ids)
                answer = vnic.once(nic.server.SetLogLevel, v1.SetLogLevelRequest(), timeout=60)
                self.assertEqual(answer, v1.LogLevel())
                # All attempts have one id.
                self.assertEqual(len(moody.ids), 1)
                # Who does not know that it shall only check is not asked.
                with self.assertRaises(NotImplementedError):
                    vnic.validate_only(nic, nic.server.SetLogLevel, v1.SetLogLevelRequest())
                self.assertEqual(moody.calls["SetLogLevel"], 3)
                moody.features.append("validate-only")
                vnic.validate_only(nic, nic.server.SetLogLevel, v1.SetLogLevelRequest(), timeout=60)
            server.stop(None).wait()
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(vnic.details(refused.exception), vnic.Details())
        self.assertEqual(moody.calls, {"GetServerInfo": 5, "SetLogLevel": 4})

    def test_pages_are_asked_for_until_there_is_no_more(self):
        asked = []

        def method(request, timeout):
            asked.append((request.page_token, timeout))
            n = len(asked)
            adapters = [v1.Adapter(name=f"adapters/vf{n}")] if n != 2 else []
            return v1.ListAdaptersResponse(adapters=adapters, next_page_token=str(n) if n < 3 else "")

        request = v1.ListAdaptersRequest(page_size=1)
        names = [adapter.name for adapter in vnic.pages(method, request, timeout=7)]
        self.assertEqual(names, ["adapters/vf1", "adapters/vf3"])
        self.assertEqual(asked, [("", 7), ("1", 7), ("2", 7)])
        self.assertEqual(request.page_token, "")

    def test_endpoints_that_are_none_are_refused(self):
        for endpoint in ("http://localhost:9401", "localhost:9401", "https://localhost:9401"):
            with self.assertRaises(ValueError):
                vnic.connect(endpoint)
        with self.assertRaises(FileNotFoundError):
            vnic.connect("https://localhost:9401", ca=Path("/no/such/ca.pem"), cert="x", key="y")


if __name__ == "__main__":
    unittest.main()
