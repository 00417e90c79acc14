; Kernels go, hook handles among them, and what only they needed.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s

; CHECK-NOT: amdgpu_kernel
; CHECK-NOT: __luthier_hook_handle_hook
; CHECK-NOT: @only_kernel
; CHECK-NOT: @kernel_lds
; CHECK: @handles = external addrspace(1) global [1 x ptr]
; CHECK: define void @hook()

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [1 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null }
], section "llvm.metadata"

@kernel_lds = internal addrspace(3) global i32 undef
@handles = addrspace(1) global [1 x ptr] [ptr @__luthier_hook_handle_hook]

define internal void @hook() {
  ret void
}

define protected amdgpu_kernel void @__luthier_hook_handle_hook() {
  ret void
}

define protected amdgpu_kernel void @kernel() {
  call void @only_kernel()
  ret void
}

define internal void @only_kernel() {
  call void asm sideeffect "s_nop 0", ""()
  store i32 1, ptr addrspace(3) @kernel_lds
  ret void
}
