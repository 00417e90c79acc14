"""Two intrinsics for hooks: one a value that LLVM IR defines, one that the compiler of hooks has to say."""

from luthier import Intrinsic
from luthier.payload import IntrinsicCall, Lowering

_ROTATE = """
declare i32 @llvm.fshl.i32(i32, i32, i32)
declare i64 @llvm.fshl.i64(i64, i64, i64)

define i32 @"extra::rotate.i32.i32.i32"(i32 %value, i32 %distance) {
  %result = call i32 @llvm.fshl.i32(i32 %value, i32 %value, i32 %distance)
  ret i32 %result
}

define i64 @"extra::rotate.i64.i64.i32"(i64 %value, i32 %distance) {
  %wide = zext i32 %distance to i64
  %result = call i64 @llvm.fshl.i64(i64 %value, i64 %value, i64 %wide)
  ret i64 %result
}
"""

ROTATE = Intrinsic("extra::rotate", "rotate<T>(value, distance)", "turns the bits of a value", definition=_ROTATE)


def _wave_size(call: IntrinsicCall, lowering: Lowering) -> list[str]:
    return [f"{call.result} = add i32 0, {lowering.wave_size}"] if call.result else []


WAVE_SIZE = Intrinsic("extra::bits::wave_size", "wave_size()", "lanes a wave of the kernel", lower=_wave_size)
