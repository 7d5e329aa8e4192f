"""Checks of the ways to other nodes: interfaces, names, ports, peers and the clock."""

from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.host import Host, Interface
from k31ctl.core.host_rule import Fault, Need, Rule, Verdict, fine, found, known, listed, skipped

GROUP: Final = "network"
# HTTP first, then what the ranks of several nodes meet at.
PORTS: Final = {
    "vllm": (8000, 29501),
    "sglang": (30000, 20000),
    "tokenspeed": (8000, 23456),
    "tensorrt-llm": (8000,),
    "embedded": (8000,),
}
_IFNAMES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_ONE_NODE: Final = "one node needs no network between nodes"
_FAR_S: Final = 0.002
_CLOCK_OFF_S: Final = 0.5


def interface(host: Host, need: Need) -> Verdict:
    """Gloo and NCCL are told one interface that exists, is up and is not the loopback."""
    if need.num_nodes == 1:
        return skipped(_ONE_NODE)
    interfaces = known(host.network).interfaces
    told = host.environment or {}
    choices = [i for i in interfaces if i.is_up and not i.virtual]
    faults = [
        fault
        for name in _IFNAMES
        if (fault := _interface_fault(name, told.get(name, ""), interfaces, choices)) is not None
    ]
    named = sorted({told[name] for name in _IFNAMES if told.get(name)})
    one = choices[0].name if choices else "none"
    return found(*faults, good=f"{', '.join(named) or one}")


def _interface_fault(
    name: str, value: str, interfaces: tuple[Interface, ...], choices: list[Interface]
) -> Fault | None:
    """What is wrong with one variable: unset with several interfaces to choose from, or wrong."""
    shown = listed([i.name for i in choices]) or "none"
    remedy = f"export {name}=INTERFACE, the one that reaches the other nodes (up: {shown})"
    if not value:
        if len(choices) == 1:
            return None
        what = f"{name} is not set, and {len(choices)} interfaces are up ({shown})"
        return Fault(message=what, remedy=remedy, where=name)
    if value.startswith("^"):
        return None
    prefixes = [part.removeprefix("=") for part in value.split(",")]
    meant = [i for i in interfaces if any(i.name.startswith(prefix) for prefix in prefixes)]
    if any(i.name == "lo" for i in meant):
        what = f"{name}={value} is the loopback, which no other node reaches"
    elif not meant:
        what = f"{name}={value} is no interface of this machine"
    elif not any(i.is_up for i in meant):
        what = f"{name}={value} is down"
    else:
        return None
    return Fault(message=what, remedy=remedy, where=name)


def own_name(host: Host, need: Need) -> Verdict:
    """This machine's own name is not an address of the loopback."""
    network = known(host.network)
    if need.num_nodes == 1:
        return skipped(_ONE_NODE)
    told = host.environment or {}
    pinned = any(told.get(name) for name in ("VLLM_HOST_IP", "SGLANG_HOST_IP"))
    faults = [
        Fault(
            message=f"{network.hostname} is an address of the loopback in /etc/hosts: Gloo "
            "announces that to the other nodes",
            remedy="give the name its real address, or set VLLM_HOST_IP or SGLANG_HOST_IP",
            where="/etc/hosts",
            severity=Severity.WARNING if pinned else None,
        )
    ]
    return found(
        *(faults if network.hostname_is_loopback else ()),
        good=f"{network.hostname or 'no name'} is not the loopback",
    )


def side_channel(host: Host, need: Need) -> Verdict:
    """NIXL's side channel is not announced as localhost."""
    value = known(host.environment).get("VLLM_NIXL_SIDE_CHANNEL_HOST", "")
    if need.num_nodes == 1 or not value:
        return skipped("VLLM_NIXL_SIDE_CHANNEL_HOST is not set" if not value else _ONE_NODE)
    local = value == "localhost" or value.startswith("127.") or value == "::1"
    faults = [
        Fault(
            message=f"VLLM_NIXL_SIDE_CHANNEL_HOST={value} cannot be reached from other nodes",
            remedy="set it to this node's own address",
            where="VLLM_NIXL_SIDE_CHANNEL_HOST",
        )
    ]
    return found(*(faults if local else ()), good=value)


def ports_free(host: Host, need: Need) -> Verdict:
    """Nothing listens where the engine will."""
    wanted = PORTS.get(need.engine.engine, (8000,))[: None if need.num_nodes > 1 else 1]
    taken = [port for port in wanted if port in known(host.network).listening]
    faults = [
        Fault(
            message=f"something listens on port {port}, which {need.engine.name} takes by default",
            remedy=f"end it (ss -ltnp sport = :{port}), or choose another port",
            where=f"port {port}",
        )
        for port in taken
    ]
    return found(*faults, good=f"{', '.join(map(str, wanted))} free")


def peers_answer(host: Host, need: Need) -> Verdict:
    """Every named machine answers, if only with a refusal."""
    peers = host.peers
    if peers is None:
        return skipped("no other machine was named with --peers")
    lost = [p for p in peers if p.round_trip_s is None]
    times = [p.round_trip_s for p in peers if p.round_trip_s is not None]
    faults = [
        Fault(
            message=f"{p.address} cannot be reached: {p.why}",
            remedy="open the port in the firewall and the security group; look at routes and names",
            where=p.address,
        )
        for p in lost
    ]
    silent = [p.address for p in peers if p.round_trip_s is not None and p.why]
    note = f"; nothing listens yet on {listed(silent)}" if silent else ""
    slowest = max(times, default=0.0)
    return found(
        *faults,
        good=f"{len(peers)} reached, at most {slowest * 1000:.2g} ms{note}",
        num_reached=len(times),
        slowest_s=slowest,
    )


def peers_near(host: Host, need: Need) -> Verdict:
    """Every named machine is as near as one in the same hall."""
    far = [p for p in host.peers or () if p.round_trip_s is not None and p.round_trip_s > _FAR_S]
    if not host.peers:
        return skipped("no other machine was named with --peers")
    faults = [
        Fault(
            message=f"{p.address} answers after {(p.round_trip_s or 0) * 1000:.3g} ms; one hall is "
            "well below 2 ms",
            remedy="place the nodes together; a layer's all-reduce crosses this way every time",
            where=p.address,
        )
        for p in far
    ]
    return found(*faults, good="all near")


def clock_follows(host: Host, need: Need) -> Verdict:
    """The clock follows a server."""
    clock = known(host.clock)
    offset = abs(clock.offset_s or 0.0)
    if clock.synchronised and offset < _CLOCK_OFF_S:
        return fine(f"synchronised, by {clock.told_by}")
    what = (
        f"the clock is {offset:.3g} s off" if clock.synchronised else "the clock follows no server"
    )
    return found(
        Fault(
            message=f"{what}: logs and metrics of several nodes do not line up, and TLS may fail",
            remedy="systemctl enable --now chronyd (or systemd-timesyncd)",
            where=clock.told_by,
        )
    )


NETWORK_RULES: Final = (
    Rule(
        id="network-interface",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("network",),
        source="vllm#7074, vllm#19045, HAMi-core#261",
        judge=interface,
        also=("environment",),
    ),
    Rule(
        id="network-own-name",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("network",),
        source="vllm#7074, vllm#19045",
        judge=own_name,
        also=("environment",),
    ),
    Rule(
        id="network-side-channel",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("environment",),
        source="nixl#1614, NVIDIA/srt-slurm#11, dynamo#4773",
        judge=side_channel,
    ),
    Rule(
        id="ports-free",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("network",),
        source="defaults of vLLM 0.33.0, SGLang 0.5.23 and TokenSpeed 0.1.1",
        judge=ports_free,
    ),
    Rule(
        id="peers-reachable",
        group=GROUP,
        severity=Severity.ERROR,
        sections=(),
        source="a TCP connection",
        judge=peers_answer,
        also=("peers",),
    ),
    Rule(
        id="peers-near",
        group=GROUP,
        severity=Severity.WARNING,
        sections=(),
        source="a TCP connection",
        judge=peers_near,
        also=("peers",),
    ),
    Rule(
        id="clock",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("clock",),
        source="chronyc and timedatectl",
        judge=clock_follows,
    ),
)
