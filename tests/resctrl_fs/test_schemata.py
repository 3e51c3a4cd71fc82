"""Masks, bandwidth values, exclusiveness and initial allocations, by the kernel's rules."""

import errno
from dataclasses import replace

import pytest

from tests.resctrl_fs.command import CommandError
from tests.resctrl_fs.hardware import AMD, INTEL, INTEL_L2, BandwidthControl, CacheControl, Machine
from tests.resctrl_fs.schemata import ControlTable, Mode, first_run, parse_bandwidth, parse_mask

INTEL_L3, AMD_L3 = INTEL.l3, AMD.l3
assert INTEL_L3
assert AMD_L3
assert INTEL.bandwidth
assert AMD.bandwidth


def table_of(modes: dict[int, Mode], machine: Machine = INTEL, *options: str) -> ControlTable:
    return ControlTable(machine, frozenset(options), modes.get)


@pytest.mark.parametrize(
    ("control", "text", "mask"),
    [
        pytest.param(INTEL_L3, "7ff", 0x7FF, id="full"),
        pytest.param(INTEL_L3, "0x3c", 0x3C, id="prefix"),
        pytest.param(INTEL_L3, "1", 1, id="one bit where one is the minimum"),
        pytest.param(AMD_L3, "a5", 0xA5, id="gaps where sparse masks are allowed"),
        pytest.param(AMD_L3, "0", 0, id="empty where no bit is required"),
    ],
)
def test_mask_accepted(control: CacheControl, text: str, mask: int) -> None:
    assert parse_mask(control, text) == mask


@pytest.mark.parametrize(
    ("control", "text", "message"),
    [
        pytest.param(INTEL_L3, "f7", "The mask f7 has non-consecutive 1-bits", id="gap"),
        pytest.param(INTEL_L3, "0", "Mask out of range", id="empty"),
        pytest.param(INTEL_L3, "fff", "Mask out of range", id="too wide"),
        pytest.param(INTEL_L3, "xyz", "Non-hex character in the mask xyz", id="not hexadecimal"),
        pytest.param(INTEL_L3, "-1", "Non-hex character in the mask -1", id="negative"),
        pytest.param(replace(INTEL_L3, min_cbm_bits=2), "4", "Need at least 2 bits in the mask", id="too few"),
        pytest.param(
            replace(INTEL_L3, min_cbm_bits=2, has_sparse_masks=True),
            "5",
            "Need at least 2 bits in the mask",
            id="the first run decides on the minimum",
        ),
    ],
)
def test_mask_refused(control: CacheControl, text: str, message: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse_mask(control, text)
    assert (refused.value.errno, refused.value.message) == (errno.EINVAL, message)


@pytest.mark.parametrize(
    ("control", "text", "value"),
    [
        pytest.param(INTEL.bandwidth, "50", 50, id="on a step"),
        pytest.param(INTEL.bandwidth, "51", 60, id="rounded up to the next step"),
        pytest.param(AMD.bandwidth, "16", 16, id="eighths of a GB/s"),
    ],
)
def test_bandwidth_accepted(control: BandwidthControl, text: str, value: int) -> None:
    assert parse_bandwidth(control, text, is_mbps=False) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("5", "MB value 5 out of range [10,100]", id="below the minimum"),
        pytest.param("101", "MB value 101 out of range [10,100]", id="above the maximum"),
        pytest.param("ten", "Invalid MB value ten", id="not a number"),
        pytest.param("99999999999", "Invalid MB value 99999999999", id="not 32 bits"),
    ],
)
def test_bandwidth_refused(text: str, message: str) -> None:
    assert INTEL.bandwidth
    with pytest.raises(CommandError) as refused:
        parse_bandwidth(INTEL.bandwidth, text, is_mbps=False)
    assert refused.value.message == message


def test_software_controller_takes_any_value_as_it_is() -> None:
    assert INTEL.bandwidth
    assert parse_bandwidth(INTEL.bandwidth, "12345", is_mbps=True) == 12345


def test_one_bad_line_changes_nothing() -> None:
    table = table_of({0: "shareable"})
    with pytest.raises(CommandError):
        table.write(0, "shareable", "L3:0=f\nMB:0=5")
    assert table.schemata_text(0) == "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("L3", "Missing ':'", id="no colon"),
        pytest.param("L3:", "Missing 'L3' value", id="no value"),
        pytest.param("L4:0=f", "Unknown or unsupported resource name 'L4'", id="resource"),
        pytest.param("L3:0", "Missing '=' or non-numeric domain", id="no equals sign"),
        pytest.param("L3:a=f", "Missing '=' or non-numeric domain", id="domain not a number"),
        pytest.param("L3:0=f;0=3", "Duplicate domain 0", id="domain twice"),
        pytest.param("L3:7=f", None, id="domain that is not there"),
    ],
)
def test_line_refused(text: str, message: str | None) -> None:
    with pytest.raises(CommandError) as refused:
        table_of({0: "shareable"}).write(0, "shareable", text)
    assert (refused.value.errno, refused.value.message) == (errno.EINVAL, message)


def test_values_of_unnamed_domains_stay_and_spaces_do_not_matter() -> None:
    table = table_of({0: "shareable"})
    table.write(0, "shareable", "  L3 :1= f;\nMB:0=20")
    assert table.schemata_text(0) == "    MB:0=20;1=100\n    L3:0=7ff;1=f\n"


def test_padded_format_of_older_kernels() -> None:
    table = table_of({0: "shareable"}, AMD)
    table.write(0, "shareable", "MB:1=16\nL3:8=ff")
    assert table.schemata_text(0) == ("    MB:0=2048;1=  16;2=2048;8=2048\n    L3:0=ffff;1=ffff;2=ffff;8=00ff\n")


def test_size_mirrors_the_schemata_in_bytes() -> None:
    table = table_of({0: "shareable"})
    table.write(0, "shareable", "L3:1=3")
    assert table.size_text(0) == f"    MB:0=100;1=100\n    L3:0={22 << 20};1={(22 << 20) // 11 * 2}\n"


def test_code_and_data_are_separate_lines_with_half_the_closids() -> None:
    table = table_of({0: "shareable"}, INTEL, "cdp")
    assert [schema.name for schema in table.schemas] == ["MB", "L3DATA", "L3CODE"]
    assert [schema.num_closids for schema in table.schemas] == [8, 8, 8]
    table.write(0, "shareable", "L3DATA:0=f")
    assert table.schemata_text(0).splitlines()[1:] == ["L3DATA:0=f;1=7ff", "L3CODE:0=7ff;1=7ff"]


def test_the_scarcest_resource_limits_the_closids() -> None:
    assert table_of({}, INTEL_L2).num_closids == 8
    assert table_of({}, INTEL_L2, "cdpl2").num_closids == 4


def test_nobody_may_touch_an_exclusive_group() -> None:
    modes: dict[int, Mode] = {0: "shareable", 1: "shareable"}
    table = table_of(modes)
    table.write(0, "shareable", "L3:0=7f0;1=7f0")
    table.write(1, "shareable", "L3:0=f;1=f")
    modes[1] = "exclusive"
    with pytest.raises(CommandError, match="Overlaps with exclusive group"):
        table.write(0, "shareable", "L3:0=ff")
    with pytest.raises(CommandError, match="Overlaps with other group"):
        table.write(1, "exclusive", "L3:0=1f")


def test_exclusive_group_may_not_use_bits_that_hardware_shares() -> None:
    table = table_of({0: "shareable", 1: "shareable"})
    table.write(0, "shareable", "L3:0=f;1=f")
    table.write(1, "shareable", "L3:0=400;1=400")
    with pytest.raises(CommandError, match="Schemata overlaps"):
        table.check_exclusive(1)
    table.write(1, "shareable", "L3:0=1f0;1=1f0")
    table.check_exclusive(1)


def test_exclusive_code_keeps_data_of_others_out() -> None:
    modes: dict[int, Mode] = {0: "shareable", 1: "shareable"}
    table = table_of(modes, INTEL, "cdp")
    table.write(0, "shareable", "L3CODE:0=7f0;1=7f0\nL3DATA:0=7f0;1=7f0")
    table.write(1, "shareable", "L3CODE:0=f;1=f\nL3DATA:0=8;1=8")
    modes[1] = "exclusive"
    with pytest.raises(CommandError, match="Overlaps with exclusive group"):
        table.write(0, "shareable", "L3DATA:0=1")


def test_fresh_group_gets_what_is_shareable_or_unused() -> None:
    modes: dict[int, Mode] = {0: "shareable", 1: "shareable"}
    table = table_of(modes)
    table.write(0, "shareable", "L3:0=1f0;1=180")
    table.write(1, "shareable", "L3:0=3;1=70")
    modes[1] = "exclusive"
    assert table.bit_usage_text(table.schemas[1]) == "0=HHSSSSS00EE;1=HHSSEEE0000\n"
    modes[2] = "shareable"
    table.init_group(2)
    # Domain 1 offers 0xf below the exclusive bits and 0x780 above: the lower run is taken.
    assert table.schemata_text(2) == "    MB:0=100;1=100\n    L3:0=7fc;1=f\n"


def test_no_room_left_by_an_exclusive_group() -> None:
    modes: dict[int, Mode] = {0: "exclusive", 1: "shareable"}
    assert INTEL_L3
    table = table_of(modes, replace(INTEL, l3=replace(INTEL_L3, shareable_bits=0)))
    with pytest.raises(CommandError) as refused:
        table.init_group(1)
    assert (refused.value.errno, refused.value.message) == (errno.ENOSPC, "No space on L3:0")


@pytest.mark.parametrize(("mask", "run"), [(0, 0), (0b1, 0b1), (0b1011, 0b11), (0b1100, 0b1100), (0b10100, 0b100)])
def test_first_run(mask: int, run: int) -> None:
    assert first_run(mask) == run
