"""Run by `test_hip_device` under `luthier run`: everything that a HIP device does, with results checked."""

from __future__ import annotations

import sys

import luthier
import numpy as np
from luthier.errors import LuthierError


def refused(*arguments: object, **named: object) -> str:
    """Return the error of a call that must fail."""
    function, *rest = arguments
    try:
        function(*rest, **named)  # type: ignore[operator]
    except LuthierError as problem:
        return str(problem)
    raise AssertionError(f"{function} {rest} was not refused")


def main() -> None:
    path, target = sys.argv[1:]
    device = luthier.open_device("hip:0")
    assert device.target.target.name == target, device
    module = device.load(path)
    numbers = np.arange(1000, dtype=np.int32)
    out = np.zeros(1000, np.int32)
    module.kernel("scale").launch(numbers, out, 3, len(numbers), grid=4, block=256)
    assert np.array_equal(out, numbers * 3 + np.resize([1, 2, 3, 4], 1000))
    total = module.variable("total")
    assert total.read(int) == 1005
    total.write(7)
    module.variable("table").write(np.full(4, 10, np.int32))
    source, result = device.allocate(4000), device.allocate(4000)
    assert result.read() == bytes(4000)
    source.write(numbers)
    module.kernel("scale").launch(source, result, np.int32(-2), 1000, grid=(4, 1), block=(256, 1, 1))
    assert np.array_equal(result.read(np.int32), numbers * -2 + 10)
    assert total.read(int) == 1007
    source.write(numbers[:1], 3996)
    assert source.read(np.int32)[-1] == 0
    raw = np.array([source.address, result.address], np.uint64).tobytes() + np.array([0, 1000], np.int32).tobytes()
    module.kernel("scale").launch(raw, grid=4, block=256)
    assert np.all(result.read(np.int32) == 10)
    data = np.arange(200, dtype=np.int32)
    module.kernel("reverse").launch(data, block=200, dynamic_lds=800)
    assert np.array_equal(data, np.arange(200)[::-1])
    arrived, seen = np.zeros(1, np.uint32), np.zeros(6, np.uint32)
    message = refused(module.kernel("meet").launch, arrived, seen, grid=6, block=64, cooperative=True)
    assert "has no hipModuleLaunchCooperativeKernel" in message  # before ROCm 6
    assert len(module.kernel("scale").lift().blocks) > 1

    assert "does not count" in refused(lambda: device.stats)
    assert "no kernel 'none'" in refused(module.kernel, "none")
    assert "no variable 'none'" in refused(module.variable, "none")
    assert "takes 4 arguments" in refused(module.kernel("scale").launch, out)
    assert "do not fit" in refused(source.write, bytes(4001))
    assert "hip:1" in refused(luthier.open_device, "hip:1")
    assert "neither threads nor checks" in refused(luthier.open_device, "hip:0", threads=2)
    assert "hipModuleLaunchKernel" in refused(module.kernel("reverse").launch, data, block=2000)
    source.free()
    assert "was freed" in refused(lambda: source.address)
    module.unload()
    assert "unloaded" in refused(module.kernel("scale").launch, numbers, out, 3, 1000)
    assert "unloaded" in refused(total.read)
    print("right")


if __name__ == "__main__":
    main()
