; What is not a hook in shape is refused, by the place of its annotation.
; RUN: sed -e 's/@HOOK/@_Z7returnsi/' %s > %t.ll && not %opt -passes=luthier-prepare -S %t.ll -o %t 2>&1 \
; RUN:   | FileCheck %s --check-prefix=RETURNS
; RUN: sed -e 's/@HOOK/@_Z8declaredv/' %s > %t.ll && not %opt -passes=luthier-prepare -S %t.ll -o %t 2>&1 \
; RUN:   | FileCheck %s --check-prefix=DECLARED
; RUN: sed -e 's/@HOOK/@kernel/' %s > %t.ll && not %opt -passes=luthier-prepare -S %t.ll -o %t 2>&1 \
; RUN:   | FileCheck %s --check-prefix=KERNEL
; RUN: sed -e 's/@HOOK/@variadic/' %s > %t.ll && not %opt -passes=luthier-prepare -S %t.ll -o %t 2>&1 \
; RUN:   | FileCheck %s --check-prefix=VARIADIC

; RETURNS: error: luthier: tool.hip:7: hook 'returns(int)' must be a device function, defined here, that returns nothing
; DECLARED: error: luthier: tool.hip:7: hook 'declared()' must be
; KERNEL: error: luthier: tool.hip:7: hook 'kernel' must be
; VARIADIC: error: luthier: tool.hip:7: hook 'variadic' must be

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [1 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @HOOK to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null }
], section "llvm.metadata"

define internal i32 @_Z7returnsi(i32 %value) {
  ret i32 %value
}

declare void @_Z8declaredv()

define amdgpu_kernel void @kernel() {
  ret void
}

define internal void @variadic(...) {
  ret void
}
