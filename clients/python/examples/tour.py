"""What README.md shows with vnicctl ("Look, and change"), from Python: on a daemon with adapters vf0 and vf1.

It waits for a frame between the two, so their guests should say something. In the end everything is as it was.
"""

from google.protobuf.field_mask_pb2 import FieldMask
from grpc import RpcError

import vnic
from vnic import v1

nic = vnic.connect()

# vnicctl status
info = nic.server.GetServerInfo(v1.GetServerInfoRequest())
print(f"vnicd {info.version}: {info.adapters} adapters, answers: {info.responsive}")

# vnicctl adapter watch: what there is, a mark, then changes.
watch = nic.adapters.WatchAdapters(v1.WatchAdaptersRequest())
for news in watch:
    if news.change == v1.WatchAdaptersResponse.CHANGE_SYNCED:
        break
    print(news.adapter.name, news.adapter.macs[0], v1.Adapter.State.Name(news.adapter.state))
watch.cancel()

# vnicctl registry set vf0 DelayDropTimeout 50: settings by the names of the real card. Here only if nobody else has changed it.
entry = nic.registry.GetEntry(v1.GetEntryRequest(scope="adapters/vf0", key="DelayDropTimeout"))
write = v1.SetEntryRequest(scope=entry.scope, key=entry.key, value="50", if_match=entry.etag)
done = nic.registry.SetEntry(write)
print(f"{entry.key}: {entry.effective} -> {done.entry.effective}")
try:
    nic.registry.SetEntry(write)
except RpcError as error:
    print(f"again: {error.code().name} {vnic.details(error).reason}")

# vnicctl qos set vf0 --trust dscp --pfc 0,0,0,1,0,0,0,0: priority 3 is lossless.
qos = v1.Qos(name="adapters/vf0/qos", trust=v1.Qos.TRUST_DSCP, pfc=[i == 3 for i in range(8)])
qos = nic.qos.UpdateQos(v1.UpdateQosRequest(qos=qos, update_mask=FieldMask(paths=["trust", "pfc"])))
print(f"trust: {v1.Qos.Trust.Name(qos.trust)}, lossless: {[i for i in range(8) if qos.pfc[i]]}")

# vnicctl cc enable vf0 3: DCQCN on it.
bit = 1 << 3
congestion = nic.congestion.SetCongestion(
    v1.SetCongestionRequest(name="adapters/vf0/congestion", enable_reaction=bit, enable_notification=bit)
)
print(f"{congestion.algorithm} on: {[i for i in range(8) if congestion.reaction[i]]}")

# vnicctl capture live -w - vf0 | tshark -r -: until one frame is there.
chunks = nic.captures.StreamCapture(
    v1.StreamCaptureRequest(filter=v1.CaptureFilter(owners=["adapters/vf0"], max_frames=1))
)
chunks = list(chunks)
capture = b"".join(chunk.pcapng for chunk in chunks)  # (What goes into a file or to tshark.)
assert capture.startswith(b"\n\r\r\n")
print(f"captured: {chunks[-1].frames} frame of pcapng")

# vnicctl counter list --nonzero: as many pages as it takes.
counters = vnic.pages(nic.counters.ListCounters, v1.ListCountersRequest(nonzero=True, page_size=5))
names = {counter.name for counter in counters if counter.owner == "adapters/vf0"}
print(f"counted: {sorted(names & {'rx_frames', 'tx_frames'})}")

# vnicctl fault add lossy --from vf0 --to vf1 --probability 1% --seed 42 --drop
lossy = v1.Fault(probability=0.01, seed=42, drop=v1.DropFault())
setattr(lossy.match, "from", "adapters/vf0")  # (A word of Python's own: hence setattr.)
lossy.match.to = "adapters/vf1"
fault = nic.faults.CreateFault(v1.CreateFaultRequest(fault_id="lossy", fault=lossy))
print(f"{fault.name}: {fault.probability:.0%} of what goes from {getattr(fault.match, 'from')}")
try:
    nic.faults.CreateFault(v1.CreateFaultRequest(fault_id="Lossy!", fault=v1.Fault(probability=2)))
except RpcError as error:
    print(f"wrong: {sorted(vnic.details(error).violations)}")

# vnicctl event list: what all this has left.
events = vnic.pages(nic.events.ListEvents, v1.ListEventsRequest(filter=v1.EventFilter(kind="settings_changed")))
print("events:", *(event.message for event in events), sep="\n  ")

nic.faults.DeleteFault(v1.DeleteFaultRequest(name=fault.name))
nic.congestion.ResetCongestion(v1.ResetCongestionRequest(name=congestion.name))
nic.qos.ResetQos(v1.ResetQosRequest(name=qos.name))
nic.registry.DeleteEntry(v1.DeleteEntryRequest(scope=entry.scope, key=entry.key))
nic.close()
