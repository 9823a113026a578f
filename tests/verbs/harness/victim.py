"""A process with two connected queue pairs that writes to itself without end: what others on its adapter must not feel when it is
killed. Says `writing` once it does."""

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

SIZE, DEPTH = 65536, 16

context = Context(name="vnic0")
pd = PD(context)
cq = CQ(context, 2 * DEPTH)
mr = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=DEPTH, max_recv_wr=1))
pair = [QP(pd, init), QP(pd, init)]
for qp, other in (pair, pair[::-1]):
    route = GlobalRoute(dgid=context.query_gid(1, 1), sgid_index=1)
    attributes = QPAttr(port_num=1)
    attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    attributes.dest_qp_num = other.qp_num
    attributes.path_mtu = e.IBV_MTU_1024
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
    attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    qp.to_rts(attributes)
write = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, SIZE, mr.lkey)])
write.set_wr_rdma(mr.rkey, mr.buf)
for _ in range(DEPTH):
    pair[0].post_send(write)
print("writing", flush=True)
while True:
    count, completions = cq.poll(DEPTH)
    for completion in completions:
        assert completion.status == e.IBV_WC_SUCCESS, completion
        pair[0].post_send(write)
