"""Lists the adapters of a daemon, and tells what becomes of them until Ctrl-C."""

from vnic import connect, v1

with connect() as nic:
    for news in nic.adapters.WatchAdapters(v1.WatchAdaptersRequest()):
        if news.change == v1.WatchAdaptersResponse.CHANGE_SYNCED:
            print("--- now, and from here on as it changes", flush=True)
        else:
            change = v1.WatchAdaptersResponse.Change.Name(news.change).removeprefix("CHANGE_").lower()
            state = v1.Adapter.State.Name(news.adapter.state).removeprefix("STATE_").lower()
            print(change, news.adapter.name, state, flush=True)
