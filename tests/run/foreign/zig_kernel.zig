//! A kernel in Zig, which tests/run/foreign/zig_kernel.py launches.

const Floats = [*]addrspace(.global) f32;

export fn blend(output: Floats, input: Floats, weight: f32, count: u32) callconv(.amdgcn_kernel) void {
    const index = @workGroupId(0) * 64 + @workItemId(0);
    if (index < count) output[index] = lerp(output[index], input[index], weight);
}

noinline fn lerp(from: f32, to: f32, weight: f32) f32 {
    return from + (to - from) * weight;
}
