"""Settings of [hooks]: rules that give pods what the protocol says, and who applies them."""

from typing import Literal

import msgspec

DEFAULT_HAMI_LIBRARY = "/usr/local/vgpu/libvgpu.so"


class HooksSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[hooks]: batch amounts, CPU sets and devices of pods by Koordinator's protocol (docs/hooks.md)."""

    reconcile: Literal["auto", "on", "off"] = "auto"
    """Whether running pods get what the rules say; `auto`: with enforcement in a cluster. Pods get nothing without
    `[enforcer] enabled`."""
    features: dict[str, bool] = msgspec.field(default_factory=dict)
    """Feature gates of rules by Koordinator's names, where they differ from its defaults. Gates that a strategy shares
    (GroupIdentity, CoreSched, OOMScoreAdj, RdtResctrl, Resctrl) are those of `[strategies.features]`."""
    hami_library: str = DEFAULT_HAMI_LIBRARY
    """Library that isolates shares of one GPU, on the host and at the same path in the container."""
