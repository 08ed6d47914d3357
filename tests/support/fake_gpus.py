"""Trees of files as an AMD GPU's driver makes them, which a test may change while they are read."""

from __future__ import annotations

from pathlib import Path

GIB = 1 << 30


class Card:
    """One GPU below `root`; `tell` changes what its files say, None takes one away."""

    def __init__(self, root: Path, index: int) -> None:
        self.address = f"0000:{0xC1 + index:02x}:00.0"
        self.device = root / "bus/pci/devices" / self.address
        (self.device / "hwmon/hwmon0").mkdir(parents=True)
        card = root / f"class/drm/card{index}"
        card.mkdir(parents=True)
        (card / "device").symlink_to(self.device)
        self.tell(vendor="0x1002", product_name="AMD Instinct MI300X")
        self.tell(mem_info_vram_total=192 * GIB)
        self.work(0)

    def work(self, busy: int) -> None:
        """Be so busy, in percent."""
        self.tell(gpu_busy_percent=busy, mem_info_vram_used=(2 + busy) * GIB)
        self.tell(hwmon0__freq1_input=(132 + 19 * busy) * 1_000_000)
        self.tell(hwmon0__power1_average=(140 + 6 * busy) * 1_000_000)
        self.tell(hwmon0__temp2_input=(38 + busy // 3) * 1000)

    def tell(self, **files: object) -> None:
        for name, value in files.items():
            path = self.device / name.replace("hwmon0__", "hwmon/hwmon0/")
            if value is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(f"{value}\n")


def cards(root: Path, count: int) -> list[Card]:
    return [Card(root, index) for index in range(count)]
