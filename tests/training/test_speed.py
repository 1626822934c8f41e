"""Tokens a second by a clock in the test's hand; peaks by the names that devices have."""

from __future__ import annotations

import pytest

from lexmill.compute.execution import Execution
from lexmill.training import speed
from lexmill.training.speed import Meter, memory, peak_flops, peak_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_recent_rate_is_that_of_the_last_steps_and_the_whole_runs_of_all_time() -> None:
    clock = Clock()
    meter = Meter(clock=clock, window=10.0)
    assert meter.recent() == meter.whole() == 0
    clock.now += 50  # loading and compiling before the start
    meter.start()
    for _ in range(5):  # slow ones: 10 tokens/s
        clock.now += 4
        meter.add(40)
    assert meter.recent() == pytest.approx(10)
    for _ in range(30):  # then 100 tokens/s
        clock.now += 1
        meter.add(100)
    assert meter.recent() == pytest.approx(100)
    assert meter.whole() == pytest.approx((200 + 3000) / 50)
    assert meter.tokens == 3200


def test_what_is_done_aside_is_no_part_of_a_step() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    meter.start()
    for _ in range(4):
        clock.now += 1
        meter.add(10)
        with meter.aside():
            clock.now += 9
    assert meter.recent() == pytest.approx(10)
    assert meter.whole() == pytest.approx(1)
    with pytest.raises(RuntimeError), meter.aside():
        clock.now += 5
        raise RuntimeError
    clock.now += 1
    meter.add(10)
    assert meter.recent() == pytest.approx(10)


def test_utilisation_is_unknown_where_something_of_it_is() -> None:
    assert Meter(6_000, 1e6).flops(100) == 600_000
    assert Meter(6_000, 1e6).utilisation(100) == pytest.approx(0.6)
    assert Meter(0, 1e6).flops(100) is None
    assert Meter(0, 1e6).utilisation(100) is None
    assert Meter(6_000, None).utilisation(100) is None


# Names as torch.cuda.get_device_name() gives them; the metrics of the makers' data sheets, dense, in TFLOP/s.
DEVICES = [
    ("NVIDIA H100 80GB HBM3", 67.0, 989.4),
    ("NVIDIA H100 PCIe", 51.0, 756.0),
    ("NVIDIA H100 NVL", 60.0, 835.5),
    ("NVIDIA H200", 67.0, 989.4),
    ("NVIDIA B200", 75.0, 2250.0),
    ("NVIDIA A100-SXM4-40GB", 19.5, 312.0),
    ("NVIDIA A100 80GB PCIe", 19.5, 312.0),
    ("NVIDIA A10", 31.2, 125.0),
    ("NVIDIA L4", 30.3, 121.0),
    ("NVIDIA L40", 90.5, 181.0),
    ("NVIDIA L40S", 91.6, 362.0),
    ("Tesla V100-SXM2-16GB", 15.7, None),
    ("Tesla T4", 8.1, None),
    ("NVIDIA GeForce RTX 3090", 35.6, 71.2),
    ("NVIDIA GeForce RTX 3090 Ti", 40.0, 80.0),
    ("NVIDIA GeForce RTX 4090", 82.6, 165.2),
    ("NVIDIA RTX 6000 Ada Generation", 91.1, 364.2),
]


@pytest.mark.parametrize(("name", "float32", "bf16"), DEVICES)
def test_peaks_of_known_devices(name: str, float32: float, bf16: float | None) -> None:
    assert peak_flops(name, "32-true") == pytest.approx(float32 * 1e12)
    assert peak_flops(name, "bf16-mixed") == (None if bf16 is None else pytest.approx(bf16 * 1e12))


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3070 Ti",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA T400",
        "Radeon",
        "",
    ],
)
def test_a_device_that_is_not_in_the_table_is_unknown(name: str) -> None:
    assert peak_flops(name, "32-true") is None
    assert peak_flops(name, "bf16-mixed") is None


def test_every_entry_is_reached_by_its_own_name() -> None:
    """A shorter name before a longer one would hide it."""
    for name, float32, bf16 in speed._PEAKS:
        assert peak_flops(f"NVIDIA {name.upper()}", "32-true") == float32 * 1e12
        assert peak_flops(name, "bf16-mixed") == (None if bf16 is None else bf16 * 1e12)


def test_a_trainings_peak_is_that_of_all_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert peak_of(Execution(), "32-true") is None  # a CPU's is unknown
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 PCIe")
    eight = Execution(accelerator="cuda", devices=4, nodes=2, strategy="ddp")
    assert peak_of(eight, "bf16-mixed") == pytest.approx(8 * 756e12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Radeon")
    assert peak_of(eight, "bf16-mixed") is None


def test_memory_is_that_of_this_process_in_gib() -> None:
    with open("/proc/self/status", encoding="utf-8") as stream:
        kib = next(int(line.split()[1]) for line in stream if line.startswith("VmHWM"))
    assert memory()["memory_gib"] == pytest.approx(kib / 2**20, rel=0.05)
