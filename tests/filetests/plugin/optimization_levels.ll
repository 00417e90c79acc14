; At -O0 clang gives every function optnone and noinline; hooks and what they call must be optimizable all the same.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt '-passes=default<O0>' -S < %s | FileCheck %s --check-prefix=EMBEDDED
; RUN: %opt '-passes=default<O2>' -S < %s | FileCheck %s --check-prefix=EMBEDDED

; CHECK: define void @hook() #[[HOOK:[0-9]+]]
; CHECK: define internal void @helper() #[[HELPER:[0-9]+]]
; CHECK: define internal void @deliberately() #[[KEPT:[0-9]+]]
; CHECK-DAG: attributes #[[HOOK]] = { alwaysinline convergent "luthier_hook" }
; CHECK-DAG: attributes #[[HELPER]] = { convergent }
; CHECK-DAG: attributes #[[KEPT]] = { "luthier_noinline" }
; EMBEDDED: section ".llvmbc"

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

@llvm.compiler.used = appending addrspace(1) global [1 x ptr] [ptr @hook], section "llvm.metadata"

define hidden void @hook() #0 {
  call void @helper()
  call void @deliberately()
  ret void
}

define linkonce_odr hidden void @helper() #0 {
  ret void
}

define hidden void @deliberately() #1 {
  ret void
}

attributes #0 = { convergent noinline optnone }
attributes #1 = { noinline }
